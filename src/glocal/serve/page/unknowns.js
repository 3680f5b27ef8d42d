// Known unknowns: photos of other things, which it is to call unknown.

import { formOf } from "./api.js";
import { h, keyed, picture, plural } from "./dom.js";
import { dropZone, portions } from "./photos.js";
import { change, watch } from "./store.js";

const find = (id) => document.getElementById(id);

export function setUpUnknowns() {
  dropZone(find("unknowns"), add);
  watch(({ state }) => {
    keyed(find("unknown-photos"), state.known_unknowns, {
      key: (photo) => photo.id,
      build: (photo) =>
        h("li", { class: "thumb" }, picture(photo.thumbnail, photo.name, { title: photo.name })),
    });
    find("unknown-photos").hidden = !state.known_unknowns.length;
    find("unknowns-count").textContent = state.known_unknowns.length
      ? `${plural(state.known_unknowns.length, "photo")}.`
      : "None yet.";
  });
}

async function add(files) {
  for (const some of portions(files)) {
    const doing = `Looking at ${plural(some.length, "photo")} of other things…`;
    const again = () => add(files.slice(files.indexOf(some[0])));
    if (!(await change("POST", "/unknowns", { body: formOf({}, some), doing, again }))) return;
  }
}

/** Photos that were asked about and are none of the classes. */
export function keepUnknown(ids, doing) {
  return change("POST", "/review/unknowns", { body: { items: ids }, doing });
}
