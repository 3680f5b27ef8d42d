// The check-up: what a careful colleague would say about the photos and the threshold, the same wherever it stands.

import { sentence } from "./api.js";
import { h, icon, keyed } from "./dom.js";
import { watch } from "./store.js";

export function setUpAdvice() {
  watch(({ state }) => {
    const said = [
      ...state.findings,
      ...(state.threshold?.warnings ?? []).map((text) => ({ kind: "threshold", text, classes: [] })),
    ];
    for (const card of document.querySelectorAll(".checkup")) {
      keyed(card.querySelector("ul"), said, {
        key: (each) => each.text,
        build: ({ kind, text }) =>
          h("li", {}, icon("hint"), h("div", {}, h("strong", {}, capital(kind)), h("p", {}, sentence(text)))),
      });
      const none = card.querySelector("p.note");
      none.hidden = said.length > 0;
      none.textContent = state.classes.length
        ? "Nothing to complain about: no duplicates, nothing misplaced, enough photos."
        : "What a careful colleague would say about your photos appears here.";
    }
  });
}

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);
