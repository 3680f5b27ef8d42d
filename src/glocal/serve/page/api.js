// Talks to the server: one function, errors as people read them, patience when the server is busy.

const TRIES = 6; // how often a request is sent while the server answers that it is busy

export class Problem extends Error {
  /** status 0: no answer at all. version: of the state on the server, given when ours was out of date. */
  constructor(status, text, version = null) {
    super(text);
    this.status = status;
    this.version = version;
  }

  get outdated() {
    return this.status === 409 && this.version !== null;
  }
}

/** The JSON of an answer. version: the state this change was made for. onWait(seconds): the server is busy. */
export async function call(method, path, { body, version, signal, onWait } = {}) {
  const headers = { Accept: "application/json" };
  if (method !== "GET") headers["X-Glocal"] = "1";
  if (version !== undefined) headers["If-Match"] = String(version);
  if (body !== undefined && !(body instanceof FormData)) {
    headers["Content-Type"] = "application/json";
    body = JSON.stringify(body);
  }
  for (let attempt = 1; ; attempt += 1) {
    const response = await send(path, { method, headers, body, signal, cache: "no-store" });
    if (response.ok) return response.status === 204 ? null : response.json();
    const wait = Math.min(Math.max(Number(response.headers.get("Retry-After")) || 1, 1), 60);
    if (response.status !== 429 || attempt === TRIES) throw await problemOf(response, wait);
    onWait?.(wait);
    await new Promise((resume) => setTimeout(resume, 1000 * wait));
  }
}

async function send(path, options) {
  try {
    return await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, "The server does not answer. Is glocal serve still running?");
  }
}

async function problemOf(response, wait) {
  let problem = {};
  try {
    problem = await response.json();
  } catch {
    // Not every error comes from our server: a proxy in between may answer with a page.
  }
  if (response.status === 401)
    return new Problem(401, "This server asks for a token. Open the address with the token that glocal serve printed.");
  if (response.status === 429) return new Problem(429, `The server is busy. Try again in ${wait} s.`);
  const detail = typeof problem.detail === "string" ? problem.detail : problem.title;
  return new Problem(
    response.status,
    sentence(detail || `The server answered with error ${response.status}`),
    problem.version ?? null,
  );
}

/** Begins with a capital letter and ends with a stop. */
export function sentence(text) {
  const clean = text.trim();
  return clean.charAt(0).toUpperCase() + clean.slice(1) + (/[.!?]$/.test(clean) ? "" : ".");
}

export function formOf(fields, files) {
  const form = new FormData();
  for (const [name, value] of Object.entries(fields)) form.append(name, value);
  for (const file of files) form.append("images", file, file.name);
  return form;
}
