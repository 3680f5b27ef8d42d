// Export: what there is to take along, and how a program asks.

import { h, plural } from "./dom.js";
import { watch } from "./store.js";

const find = (id) => document.getElementById(id);

export function setUpExport() {
  find("export-curl").textContent = `curl -F images=@photo.jpg ${location.origin}/predict`;
  watch(({ state, review }) => {
    const photos = state.classes.reduce((n, each) => n + each.photos.length, 0);
    facts("export-facts", { Classes: state.classes.length, Photos: photos, Model: state.model });
    const unknown = review.recent.filter((item) => item.is_unknown).length;
    facts("export-answers", { Answers: review.recent.length, "Of them unknown": unknown });
    const holding = state.classes.length
      ? `${plural(state.classes.length, "class", "classes")}, ${plural(photos, "photo")}`
      : "No class yet";
    find("holding").replaceChildren(holding, h("br"), state.model ?? "");
  });
}

function facts(id, rows) {
  find(id).replaceChildren(
    ...Object.entries(rows).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, String(value ?? "–")))),
  );
}
