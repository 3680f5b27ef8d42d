// An empty page says what to do, and offers an example to try with one press.

import { complain } from "./notices.js";
import { ask } from "./ask.js";
import { change, undoLast, watch } from "./store.js";

const ASKED = 6; // pictures of the example to ask about
const EXAMPLE = "example taught"; // how the server calls that change
const find = (id) => document.getElementById(id);

export function setUpStart() {
  find("start-example").addEventListener("click", () => tryExample().catch(complain));
  find("example-away").addEventListener("click", undoLast);
  watch(({ state }) => {
    find("start").hidden = state.classes.length > 0;
    find("start-try").hidden = !state.example;
    find("example-note").hidden = state.undo_label !== EXAMPLE;
  });
}

async function tryExample() {
  find("start-example").disabled = true;
  const made = await change("POST", "/example", { doing: "Teaching four handwritten digits…", undoable: false });
  find("start-example").disabled = false;
  if (!made) return;
  const files = await Promise.all(Array.from({ length: ASKED }, (_, i) => pictureOf(i)));
  location.hash = "ask";
  ask(files);
}

async function pictureOf(i) {
  const response = await fetch(`/example/${i}`);
  return new File([await response.blob()], `example-${i + 1}.png`, { type: "image/png" });
}
