// A short tour for the first visit: a card above the sections, skipped with one press and never shown again.

import { h } from "./dom.js";

const KEY = "glocal-tour"; // in the browser's own storage: seen or not, and nothing else
const STEPS = [
  ["teach", "Teach", "Give each class a name and a few photos. Nothing is trained; it takes seconds."],
  ["ask", "Ask", "Show it new photos. It answers with a name or “unknown”, and says why."],
  ["review", "Review", "What was unknown waits here. Name it, and it becomes a class; correct what was wrong."],
  ["decide", "Decide", "Choose how often a known photo may be called unknown. What would change is shown first."],
  ["check", "Check", "Before you trust it: photos whose names you know, and how many it gets right."],
  ["export", "Export", "One file holds everything. Nothing left this machine."],
];
const find = (id) => document.getElementById(id);
let step = 0;

export function setUpTour() {
  find("tour-next").addEventListener("click", () => (step + 1 < STEPS.length ? go(step + 1) : end()));
  find("tour-back").addEventListener("click", () => go(step - 1));
  find("tour-skip").addEventListener("click", end);
  find("tour-again").addEventListener("click", () => go(0));
  if (!seen()) show();
}

function go(to) {
  step = to;
  location.hash = STEPS[step][0];
  show();
  find("tour-next").focus({ preventScroll: true });
}

function show() {
  const [, name, words] = STEPS[step];
  find("tour").hidden = false;
  find("tour-text").replaceChildren(h("b", {}, name), `: ${words}`);
  find("tour-count").textContent = `${step + 1} of ${STEPS.length}`;
  find("tour-back").hidden = step === 0;
  find("tour-next").textContent = step + 1 < STEPS.length ? "Next" : "Done";
  find("tour-skip").hidden = step + 1 === STEPS.length;
}

function end() {
  find("tour").hidden = true;
  step = 0;
  try {
    localStorage.setItem(KEY, "seen");
  } catch {
    // A browser that keeps nothing shows the tour again.
  }
  if (location.hash !== "#teach") location.hash = "teach";
  find("teach-title").focus({ preventScroll: true });
}

function seen() {
  try {
    return localStorage.getItem(KEY) !== null;
  } catch {
    return false;
  }
}
