// One line at a time to the person in front: what happened, what went wrong, what can be done about it.

import { h, iconButton } from "./dom.js";

const SHORT = 9000; // milliseconds until good news goes away by itself

/** kind: "info" goes away by itself, "error" stays. action: {label, run}. Returns a function that takes it away. */
export function notice(text, { kind = "info", action = null } = {}) {
  const box = h("div", { class: `notice ${kind}` }, h("p", {}, text));
  const close = () => box.remove();
  if (action) {
    const run = () => {
      close();
      action.run();
    };
    box.append(h("button", { type: "button", class: "quiet", onclick: run }, action.label));
  }
  box.append(iconButton("close", "Dismiss", close));
  const region = document.getElementById(kind === "error" ? "alerts" : "notices");
  // Two lines at most: a third would hide the page on a phone.
  while (region.children.length > 1) region.firstChild.remove();
  region.append(box);
  if (kind === "info") vanish(box, close);
  return close;
}

/** After a while, but not under a pointer or the focus of a keyboard. */
function vanish(box, close) {
  setTimeout(() => (box.matches(":hover, :focus-within") ? vanish(box, close) : close()), SHORT);
}

/** Offers that were made for another state: "Undo" would undo something else by now. */
export function withdrawOffers() {
  for (const box of document.querySelectorAll("#notices .notice:has(.quiet)")) box.remove();
}

/** A problem as a notice; an abandoned request is none. */
export function complain(error) {
  if (error.name === "AbortError") return;
  if (!("status" in error)) console.error(error);
  notice(error.message, { kind: "error" });
}
