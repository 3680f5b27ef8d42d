// Teach: classes with their photos, a form for a new one, and what the check-up says about them.

import { formOf } from "./api.js";
import { h, icon, iconButton, keyed, picture, plural } from "./dom.js";
import { dropZone, portions } from "./photos.js";
import { change, store, watch } from "./store.js";

const AT_FIRST = 14; // thumbnails of a class that are shown without asking
const unfolded = new Set(); // classes that show all of theirs
let staged = []; // photos of the class that is being made: {file, url}

const find = (id) => document.getElementById(id);

export function setUpTeach() {
  dropZone(find("new-class"), stage);
  find("new-class").addEventListener("submit", addClass);
  setUpRename();
  watch(show);
}

export function stage(files) {
  staged.push(...files.map((file) => ({ file, url: URL.createObjectURL(file) })));
  showStaged();
  if (!find("new-name").value) find("new-name").focus();
}

function unstage(some) {
  for (const photo of some) URL.revokeObjectURL(photo.url);
  staged = staged.filter((photo) => !some.includes(photo));
  showStaged();
}

function showStaged() {
  const list = find("new-photos");
  list.hidden = !staged.length;
  list.replaceChildren(
    ...staged.map((photo, i) => {
      const remove = () => {
        unstage([photo]);
        (list.querySelectorAll("button")[Math.min(i, staged.length - 1)] ?? find("new-files")).focus();
      };
      const button = iconButton("close", `Leave out ${photo.file.name}`, remove, { class: "thumb-remove" });
      return h("li", { class: "thumb" }, picture(photo.url, photo.file.name), button);
    }),
  );
  find("new-note").textContent = staged.length
    ? `${plural(staged.length, "photo")} ready to be added.`
    : "Or drop photos here, or paste them.";
}

async function addClass(event) {
  event.preventDefault();
  const name = find("new-name").value.trim();
  const photos = [...staged];
  if (!photos.length) {
    find("new-note").textContent = "A class needs at least one photo: choose some, drop them here, or paste them.";
    find("new-files").focus();
    return;
  }
  const [first, ...rest] = portions(photos.map((photo) => photo.file));
  find("new-add").disabled = true;
  const made = await change("POST", "/classes", {
    body: formOf({ name }, first),
    doing: `Looking at ${plural(photos.length, "photo")} of ${name}…`,
  });
  find("new-add").disabled = false;
  if (!made) return; // what was typed and chosen stays
  unstage(photos);
  find("new-name").value = "";
  find("new-name").focus();
  await addPhotos(name, rest.flat());
}

async function addPhotos(name, files) {
  for (const some of portions(files)) {
    const doing = `Looking at ${plural(some.length, "photo")} of ${name}…`;
    const again = () => addPhotos(name, files.slice(files.indexOf(some[0])));
    if (!(await change("POST", "/photos", { body: formOf({ class: name }, some), doing, again }))) return;
  }
}

function show({ state }) {
  const hints = (name) => state.findings.filter((finding) => finding.classes.includes(name)).length;
  const items = state.classes.map((each) => ({ ...each, hints: hints(each.name), all: unfolded.has(each.name) }));
  keyed(find("classes"), items, { key: (item) => item.name, build: classCard });
  find("class-names").replaceChildren(...state.classes.map((each) => h("option", { value: each.name })));
}

function classCard({ name, photos, hints, all }) {
  const shown = all ? photos : photos.slice(0, AT_FIRST);
  const card = h(
    "li",
    { class: "card drop class" },
    h(
      "div",
      { class: "class-head" },
      h("h3", {}, name),
      h(
        "p",
        { class: "note" },
        plural(photos.length, "photo"),
        hints
          ? h(
              "a",
              { class: "hint", href: "#checkup" },
              icon("hint"),
              plural(hints, "hint"),
              h("span", { class: "unseen" }, ` about ${name}`),
            )
          : null,
      ),
      h(
        "div",
        { class: "class-tools" },
        iconButton("pen", `Rename ${name}`, () => openRename(name)),
        iconButton("bin", `Remove class ${name}`, () => removeClass(name)),
      ),
    ),
    h(
      "ul",
      { class: "thumbs", "aria-label": `Photos of ${name}` },
      shown.map((photo, i) => {
        const button = iconButton("close", `Remove ${photo.name} from ${name}`, () => removePhoto(name, photo, i), {
          class: "thumb-remove",
        });
        return h("li", { class: "thumb" }, picture(photo.thumbnail, photo.name, { title: photo.name }), button);
      }),
      h(
        "li",
        { class: "thumb add" },
        h(
          "label",
          {},
          icon("plus"),
          h("span", {}, "Add"),
          h("input", {
            type: "file",
            class: "unseen",
            accept: "image/*,.heic,.heif",
            multiple: true,
            "aria-label": `Add photos to ${name}`,
          }),
        ),
      ),
    ),
  );
  if (photos.length > AT_FIRST)
    card.append(
      h(
        "button",
        { type: "button", class: "quiet", onclick: () => unfold(name, !all) },
        all ? "Show fewer" : `Show all ${photos.length}`,
      ),
    );
  dropZone(card, (files) => addPhotos(name, files));
  return card;
}

function unfold(name, all) {
  if (all) unfolded.add(name);
  else unfolded.delete(name);
  show(store);
}

async function removePhoto(name, photo, i) {
  const removed = await change("DELETE", `/photos/${encodeURIComponent(photo.id)}`, {
    doing: `Removing ${photo.name}…`,
  });
  if (!removed) return;
  const buttons = cardOf(name)?.querySelectorAll(".thumb-remove") ?? [];
  (buttons[Math.min(i, buttons.length - 1)] ?? find("new-name")).focus();
}

async function removeClass(name) {
  if (await change("DELETE", `/classes/${encodeURIComponent(name)}`, { doing: `Removing ${name}…` }))
    find("new-name").focus();
}

function cardOf(name) {
  return [...find("classes").children].find((card) => card.dataset.key === name);
}

function openRename(name) {
  const dialog = find("rename");
  dialog.dataset.name = name;
  find("rename-title").textContent = `Rename “${name}”`;
  find("rename-name").value = name;
  find("rename-problem").textContent = "";
  dialog.showModal();
  find("rename-name").select();
}

function setUpRename() {
  const dialog = find("rename");
  find("rename-cancel").addEventListener("click", () => dialog.close());
  dialog.querySelector("form").addEventListener("submit", async (event) => {
    event.preventDefault(); // it closes when the new name is taken, and keeps what was typed when it is not
    const old = dialog.dataset.name;
    const name = find("rename-name").value.trim();
    const onProblem = (text) => (find("rename-problem").textContent = text);
    const path = `/classes/${encodeURIComponent(old)}`;
    if (name !== old && !(await change("PATCH", path, { body: { name }, doing: `Renaming ${old}…`, onProblem })))
      return;
    dialog.close();
    cardOf(name)?.querySelector("button").focus();
  });
}
