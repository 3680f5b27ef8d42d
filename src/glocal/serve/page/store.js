// What the server holds, as this page knows it; changes go one after the other and say which state they were made for.

import { Problem, call, sentence } from "./api.js";
import { plural } from "./dom.js";
import { complain, notice, withdrawOffers } from "./notices.js";

const BEAT = 5000; // milliseconds between looks at the version while the page is visible

const LEFT_OUT = ["unreadable", "duplicate"]; // findings about photos that were not taken: no check-up tells of them again
const THRESHOLDS = ["threshold moved", "threshold kept", "unconfirmed", "by hand"]; // and those about the change

export const store = { state: null, review: null };
const listeners = new Set();
let queue = Promise.resolve();
let offline = false;
let lastTold = "";

/** listener(store) runs now, if there is something to show, and whenever something changed. */
export function watch(listener) {
  listeners.add(listener);
  if (store.state) listener(store);
}

function tell() {
  for (const listener of listeners) listener(store);
}

const ELSEWHERE = "a change by another program"; // how the server calls one that it did not make

export async function refresh() {
  const [state, review] = await Promise.all([call("GET", "/state"), call("GET", "/review")]);
  const before = store.state?.version;
  if (state.version !== before) withdrawOffers();
  if (before !== undefined && state.version !== before && state.undo_label === ELSEWHERE)
    notice(`Another program changed ${state.file}. You see what it made of it; the arrow takes it back.`);
  Object.assign(store, { state, review });
  tell();
}

export async function refreshReview() {
  store.review = await call("GET", "/review");
  tell();
}

/** An answer came from another state than the one shown. */
export async function seen(version) {
  if (version !== store.state?.version) await refresh();
}

/** Looks whether another tab or program changed something. */
async function beat() {
  try {
    const health = await call("GET", "/health");
    if (offline || health.version !== store.state?.version) await refresh();
    setOffline(false);
    lastTold = "";
  } catch (error) {
    if (error instanceof Problem && error.status === 0) setOffline(true);
    else if (error.message !== lastTold) complain(error); // once, and not at every beat
    lastTold = error.message;
  }
}

function setOffline(now) {
  offline = now;
  document.getElementById("offline").hidden = !now;
}

export async function start() {
  await beat();
  setInterval(() => document.hidden || beat(), BEAT);
  addEventListener("focus", beat);
  document.addEventListener("visibilitychange", () => document.hidden || beat());
}

/**
 * One change of the state; true when it was made. doing: the words while it runs. undoable: offer to take it back.
 * A change made for a state that is gone is not sent again unasked: the new state is shown first, and who has
 * nothing left to press is offered again(). Problems go to onProblem(words) if given, otherwise they become notices.
 */
export function change(method, path, { body, doing, undoable = true, onProblem, again } = {}) {
  const run = async () => {
    const busy = document.getElementById("busy");
    busy.textContent = doing ?? "Working…";
    busy.hidden = false;
    try {
      const onWait = (seconds) => (busy.textContent = `The server is busy, trying again in ${seconds} s…`);
      const done = await call(method, path, { body, version: store.state?.version, onWait });
      await refresh();
      const undo = undoable && store.state.can_undo ? { label: "Undo", run: () => undoLast() } : null;
      if (done?.message) notice(inWords(done), { action: undo });
      for (const { kind, text } of done?.findings ?? [])
        if (LEFT_OUT.includes(kind)) notice(sentence(text), { kind: "error" });
      return true;
    } catch (error) {
      await explainFailure(error, onProblem, again);
      return false;
    } finally {
      busy.hidden = true;
    }
  };
  const result = queue.then(run);
  queue = result.catch(() => undefined);
  return result;
}

/** What was done, how many of the recent answers are others now, and which thresholds moved. */
function inWords({ message, answers_changed: others, n_recent: n, findings }) {
  const words = [sentence(message)];
  if (n && others.length) words.push(`${others.length} of ${plural(n, "recent answer")} would now differ.`);
  else if (n) words.push(`${plural(n, "recent answer stays", "recent answers stay")} the same.`);
  const moved = findings.filter(({ kind }) => THRESHOLDS.includes(kind));
  return [...words, ...moved.map(({ text }) => sentence(text))].join(" ");
}

const OUTDATED = "Somebody else changed the classes in the meantime. You see the new state; your change was not made.";

async function explainFailure(error, onProblem, again) {
  if (error.outdated) await refresh().catch(complain);
  if (onProblem) onProblem(error.outdated ? OUTDATED : error.message);
  else if (!error.outdated) complain(error);
  else notice(OUTDATED, { kind: "error", action: again ? { label: "Make it anyway", run: again } : null });
}

export const undoLast = () => change("POST", "/undo", { doing: "Undoing…", undoable: false });
export const redoLast = () => change("POST", "/redo", { doing: "Redoing…", undoable: false });
