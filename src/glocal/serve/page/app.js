// The page: which section is shown, undo and redo, and where pasted photos go.

import { setUpAdvice } from "./advice.js";
import { ask, setUpAsk } from "./ask.js";
import { setUpCheck } from "./check.js";
import { setUpDecide } from "./decide.js";
import { setUpExport } from "./export.js";
import { complain } from "./notices.js";
import { setUpOutlook } from "./outlook.js";
import { guardPage, pastedPhotos } from "./photos.js";
import { setUpReview } from "./review.js";
import { setUpStart } from "./start.js";
import { redoLast, start, undoLast, watch } from "./store.js";
import { setUpTeach, stage } from "./teach.js";
import { setUpTour } from "./tour.js";
import { setUpUnknowns } from "./unknowns.js";

const NAMES = ["teach", "ask", "decide", "review", "check", "export"];
const sections = {
  teach: setUpTeach(),
  ask: setUpAsk(),
  decide: setUpDecide(),
  review: setUpReview(),
  check: setUpCheck(),
  export: setUpExport(),
};
setUpOutlook();
setUpUnknowns();
setUpAdvice();
setUpStart();
const find = (id) => document.getElementById(id);
let current = null;

function go() {
  const asked = location.hash.slice(1);
  const name = NAMES.includes(asked) ? asked : NAMES[0];
  if (name === current) return;
  if (current) sections[current]?.leave?.();
  for (const each of NAMES) find(each).hidden = each !== name;
  for (const link of document.querySelectorAll(".top nav a")) {
    if (link.hash === `#${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${find(`${name}-title`).textContent} · glocal`;
  if (current) {
    scrollTo(0, 0);
    find(`${name}-title`).focus({ preventScroll: true });
  }
  current = name;
  sections[name]?.enter?.();
}

addEventListener("hashchange", go);
find("skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address says which section is shown
  find(`${current}-title`).focus();
});
addEventListener("paste", (event) => {
  const files = pastedPhotos(event);
  if (!files.length) return;
  if (current === "teach") stage(files);
  else if (current === "ask") ask(files);
});
// Marked as disabled and yet reachable: a button that vanishes under the focus of a keyboard loses the place.
const press = (run) => (event) => event.currentTarget.getAttribute("aria-disabled") === "true" || run();
find("undo").addEventListener("click", press(undoLast));
find("redo").addEventListener("click", press(redoLast));
addEventListener("keydown", (event) => {
  if (
    !(event.ctrlKey || event.metaKey) ||
    event.key.toLowerCase() !== "z" ||
    event.target.matches("input, textarea, select")
  )
    return;
  event.preventDefault();
  find(event.shiftKey ? "redo" : "undo").click();
});

watch(({ state }) => {
  find("undo").setAttribute("aria-disabled", String(!state.can_undo));
  find("redo").setAttribute("aria-disabled", String(!state.can_redo));
  for (const [id, words] of [
    ["undo", state.undo_label],
    ["redo", state.redo_label],
  ]) {
    const label = `${id === "undo" ? "Undo" : "Redo"}${words ? `: ${words}` : ""}`;
    find(id).setAttribute("aria-label", label);
    find(id).title = label;
  }
  for (const part of document.querySelectorAll("[data-empty]")) part.hidden = state.classes.length > 0;
  for (const part of document.querySelectorAll("[data-full]")) part.hidden = state.classes.length === 0;
});

guardPage();
go();
setUpTour();
start().catch(complain);
