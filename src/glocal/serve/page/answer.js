// One answer: the name or "unknown", how likely, what it is nearest to, why, and a way to correct it.

import { h, icon, percent, picture } from "./dom.js";
import { change, store } from "./store.js";
import { keepUnknown } from "./unknowns.js";

const WHOLE = 0.97; // of the longer side, from which on a frame would only be the edge of the photo
const BARS = 3; // classes shown beside the answer itself

/** source: the address of the picture that was asked about. */
export function answerCard(answer, source) {
  if (!answer.ok) {
    const words = h(
      "div",
      { class: "answer-words" },
      h("h3", {}, "Not answered"),
      h("p", {}, `${answer.name}: ${answer.error}`),
    );
    return h("li", { class: "card answer failed" }, h("div", { class: "answer-picture blank" }, icon("hint")), words);
  }
  const [why, ...details] = sentences(answer);
  const words = h(
    "div",
    { class: "answer-words" },
    h("div", { class: "answer-head" }, h("p", { class: "file" }, answer.name), verdict(answer)),
    bars(answer),
    h("p", { class: "reason" }, `${why}.`),
    details.length ? h("p", { class: "note" }, `${details.join("; ")}.`) : null,
    answer.warning ? h("p", { class: "note warning" }, icon("hint"), answer.warning) : null,
  );
  const card = h(
    "li",
    { class: `card answer ${answer.is_unknown ? "is-unknown" : "is-known"}` },
    photo(answer, source),
    words,
  );
  const more = h("button", { type: "button", class: "quiet more", "aria-expanded": "false" }, "Details");
  more.addEventListener("click", () => {
    const open = card.classList.toggle("open");
    more.setAttribute("aria-expanded", String(open));
    more.textContent = open ? "Fewer details" : "Details";
  });
  words.querySelector(".answer-head").append(more);
  if (answer.id) words.append(tools(answer, card));
  return card;
}

/** The whole photo; what the model did not see of it lies in the shade. */
function photo(answer, source) {
  const image = picture(source, answer.name);
  const frame = h("div", { class: "answer-picture" }, image);
  image.addEventListener("load", () => {
    const sides = [image.naturalWidth, image.naturalHeight];
    const side = (store.state?.sees?.share ?? 1) * (Math.min(...sides) / Math.max(...sides));
    if (side > WHOLE) return;
    const seen = h("span", { class: "seen", title: "The model saw what is in the frame." });
    seen.style.inlineSize = `${100 * side}%`;
    frame.append(seen);
    frame.querySelector("img").alt = `${answer.name}; a frame shows what the model saw of it`;
  });
  return frame;
}

function verdict(answer) {
  return h(
    "div",
    { class: "verdict" },
    h("h3", {}, answer.is_unknown ? "unknown" : answer.label),
    h("span", { class: "sure" }, percent(answer.probabilities[answer.label])),
    answer.is_unknown ? h("span", { class: "nearest" }, "nearest class ", h("b", {}, answer.nearest)) : null,
  );
}

/** The reason without the name and probability that stand above it, and the numbers behind it. */
function sentences(answer) {
  const heads = [`${answer.nearest} (`, `nearest class ${answer.nearest} (`];
  const head = heads.find((text) => answer.reason.startsWith(text));
  const rest = head
    ? answer.reason.slice(answer.reason.indexOf(")", head.length) + 1).replace(/^: |^, but /, "")
    : answer.reason;
  const whole = rest.startsWith(",") ? answer.reason : rest.charAt(0).toUpperCase() + rest.slice(1);
  return whole.split("; ");
}

/** The probability of the answer, of the likeliest classes and of unknown. */
function bars(answer) {
  const every = Object.entries(answer.probabilities).sort((a, b) => b[1] - a[1]);
  const classes = every.filter(([name]) => name !== "unknown").slice(0, BARS);
  const rows = [...classes, ["unknown", answer.probabilities.unknown]].filter((row) => row[1] !== undefined);
  rows.sort((a, b) => (b[0] === answer.label) - (a[0] === answer.label) || b[1] - a[1]);
  return h(
    "ul",
    { class: "bars", "aria-label": "Probabilities" },
    rows.map(([name, share]) => bar(name, share, name === "unknown")),
  );
}

function bar(name, share, unknown) {
  const fill = h("span", { class: "fill" });
  fill.style.inlineSize = `${Math.max(100 * share, 0.5)}%`;
  return h(
    "li",
    { class: unknown ? "unknown" : "" },
    h("span", { class: "bar-name" }, name),
    h("span", { class: "track", "aria-hidden": "true" }, fill),
    h("span", { class: "bar-share" }, percent(share)),
  );
}

function tools(answer, card) {
  const row = h("div", { class: "row tools" });
  const why = h("button", { type: "button", class: "quiet", "aria-expanded": "false" }, "Show why");
  why.addEventListener("click", () => toggleOverlay(answer, card, why));
  const wrong = h("button", { type: "button", class: "quiet" }, answer.is_unknown ? "Name it" : "Correct it");
  wrong.addEventListener("click", () => {
    wrong.replaceWith(
      correction(answer, (done) => row.replaceChildren(why, h("span", { class: "done" }, icon("check"), done))),
    );
    row.querySelector("input").focus();
  });
  row.append(why, wrong);
  return row;
}

/** A field for the true name, a new one or that of a class, or none of them; done(words) when that is saved. */
export function correction(answer, done) {
  const choice = h("input", {
    type: "text",
    maxlength: "200",
    list: "class-names",
    required: true,
    placeholder: "It shows…",
    "aria-label": `What ${answer.name} really shows`,
  });
  const save = h("button", { type: "submit", class: "button small" }, "Teach it");
  const none = h("button", { type: "button", class: "button small" }, "None of the classes");
  none.addEventListener("click", async () => {
    none.disabled = true;
    if (await keepUnknown([answer.id], `Keeping ${answer.name} as unknown…`)) done("kept as unknown");
    none.disabled = false;
  });
  const form = h("form", { class: "correction", autocomplete: "off" }, choice, save, none);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const name = choice.value.trim();
    if (!isClass(name)) {
      ask(name);
      return;
    }
    save.disabled = true;
    await teach(name);
    save.disabled = false;
  });

  const teach = async (name) => {
    const path = `/review/queries/${encodeURIComponent(answer.id)}`;
    if (await change("POST", path, { body: { class: name }, doing: `Teaching ${name}…` }))
      done(`now a photo of ${name}`);
  };

  /** A name that no class has may be a slip of the finger: nothing is made of it unasked. */
  function ask(name) {
    const make = h("button", { type: "button", class: "button small primary" }, "Make the class");
    const back = h("button", { type: "button", class: "button small" }, "Back");
    const question = h(
      "div",
      { class: "question", role: "group", "aria-label": "A new class?" },
      h("p", {}, "There is no class ", h("b", {}, name), " yet. Make it from this photo?"),
      h("div", { class: "row" }, make, back),
    );
    const undo = () => {
      question.replaceWith(form);
      choice.focus();
    };
    make.addEventListener("click", async () => {
      make.disabled = true;
      await teach(name);
      if (question.isConnected) undo();
    });
    back.addEventListener("click", undo);
    form.replaceWith(question);
    make.focus();
  }
  return form;
}

const isClass = (name) => store.state.classes.some((each) => each.name === name.normalize("NFC"));

function toggleOverlay(answer, card, button) {
  const open = card.querySelector(".overlay");
  open?.remove();
  button.setAttribute("aria-expanded", String(!open));
  button.textContent = open ? "Show why" : "Hide why";
  if (open) return;
  const words = `${answer.name} beside the photos of ${answer.nearest} most like it, patches that match joined`;
  const image = picture(`/queries/${encodeURIComponent(answer.id)}/overlay?version=${store.state.version}`, words);
  const frame = h(
    "figure",
    { class: "overlay" },
    image,
    h(
      "figcaption",
      { class: "note" },
      `Patches that match photos of ${answer.nearest} are framed and joined by lines; pale ones match nothing.`,
    ),
  );
  image.addEventListener("error", () =>
    frame.replaceChildren(h("p", { class: "note" }, "This picture is no longer kept on the server.")),
  );
  card.append(frame);
}
