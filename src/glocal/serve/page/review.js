// Review: what was unknown, in groups to be named; and the recent answers, to be corrected.

import { correction } from "./answer.js";
import { h, icon, iconButton, keyed, percent, picture, plural } from "./dom.js";
import { ask } from "./ask.js";
import { notice } from "./notices.js";
import { paged } from "./pages.js";
import { usable } from "./photos.js";
import { change, watch } from "./store.js";
import { keepUnknown } from "./unknowns.js";

const PAGE = 20;
const find = (id) => document.getElementById(id);
const drafts = new Map(); // photo id -> the name typed for its group: a group may grow while somebody types
const left = new Set(); // photo ids taken out of their group

let turnTo = null; // of the pages of recent answers

export function setUpReview() {
  turnTo = paged(find("recent"), PAGE, "answers");
  find("review-folder").addEventListener("change", (event) => {
    ask(usable(event.target.files));
    event.target.value = "";
  });
  watch(show);
}

function show({ review }) {
  const waiting = review.groups.reduce((n, group) => n + group.items.length, 0);
  find("review-count").hidden = !waiting;
  find("review-count").replaceChildren(
    h("span", { "aria-hidden": "true" }, String(waiting)),
    h("span", { class: "unseen" }, `, ${plural(waiting, "unknown photo")} waiting`),
  );
  find("drift").textContent = review.drift;
  find("groups-none").hidden = review.groups.length > 0;
  keyed(find("groups"), review.groups, { key: (group) => group.id, build: groupCard });
  find("next-part").hidden = !review.next.length;
  keyed(find("next"), review.next, { key: (item) => item.id, build: recentRow });
  find("recent-none").hidden = review.recent.length > 0;
  keyed(find("recent"), review.recent, { key: (item) => item.id, build: recentRow });
  turnTo();
}

function groupCard(group) {
  const title = group.items.length === 1 ? "A photo on its own" : `${group.items.length} photos that look alike`;
  const draft = group.items.map((item) => drafts.get(item.id)).find((text) => text) ?? "";
  const name = h("input", {
    type: "text",
    maxlength: "200",
    list: "class-names",
    required: true,
    placeholder: "What is it?",
    "aria-label": `Name for ${title.toLowerCase()}`,
  });
  name.value = draft;
  name.addEventListener("input", () => group.items.forEach((item) => drafts.set(item.id, name.value)));
  const save = h("button", { type: "submit", class: "button primary" }, "Teach");
  const form = h(
    "form",
    { class: "naming", autocomplete: "off" },
    h("label", { class: "field grow" }, h("span", {}, "Name"), name),
    save,
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    enroll(group, name.value.trim(), save);
  });
  return h(
    "li",
    { class: "card group" },
    h(
      "div",
      { class: "group-head" },
      h("h3", {}, title),
      group.suggestion
        ? h("p", { class: "note" }, "most like ", h("b", {}, group.suggestion), ", but not enough")
        : null,
    ),
    h("ul", { class: "thumbs" }, group.items.map(pick)),
    form,
    h(
      "button",
      {
        type: "button",
        class: "quiet",
        onclick: () => setAside(group),
      },
      "None of the classes: keep as unknown",
      h("span", { class: "unseen" }, `: ${title.toLowerCase()}`),
    ),
  );
}

/** A photo with a tick: only ticked ones are taught. */
function pick(item) {
  const box = h("input", { type: "checkbox" });
  box.checked = !left.has(item.id);
  box.addEventListener("change", () => (box.checked ? left.delete(item.id) : left.add(item.id)));
  const forget = iconButton("close", `Forget ${item.name}`, () => forgetPhoto(item), { class: "thumb-remove" });
  return h(
    "li",
    { class: "thumb pick" },
    h("label", {}, box, picture(item.thumbnail, item.name, { title: item.name })),
    forget,
  );
}

async function forgetPhoto(item) {
  const path = `/review/queries/${encodeURIComponent(item.id)}`;
  if (await change("DELETE", path, { doing: `Forgetting ${item.name}…`, undoable: false }))
    find("review-title").focus({ preventScroll: true });
}

/** The ticked photos; a line says when there is none. */
function ticked(group) {
  const items = group.items.map((item) => item.id).filter((id) => !left.has(id));
  if (!items.length) notice("Tick at least one photo of the group.", { kind: "error" });
  return items;
}

async function setAside(group) {
  const items = ticked(group);
  if (items.length && (await keepUnknown(items, `Keeping ${plural(items.length, "photo")} as unknown…`)))
    (find("groups").querySelector("input[type=text]") ?? find("review-title")).focus();
}

async function enroll(group, name, save) {
  const items = ticked(group);
  if (!items.length) return;
  save.disabled = true;
  const done = await change("POST", `/review/groups/${encodeURIComponent(group.id)}`, {
    body: { name, items },
    doing: `Teaching ${name}…`,
  });
  save.disabled = false;
  if (!done) return; // the typed name stays
  for (const item of group.items) drafts.delete(item.id);
  (find("groups").querySelector("input[type=text]") ?? find("review-title")).focus();
}

function recentRow(item, old) {
  if (old?.querySelector("form, .question")) return old; // somebody is typing in it
  const tools = h("div", { class: "row tools" });
  const correct = h("button", { type: "button", class: "quiet", "aria-label": `Correct ${item.name}` }, "Correct");
  correct.addEventListener("click", () => {
    correct.replaceWith(
      correction(item, (done) => tools.replaceChildren(h("span", { class: "done" }, icon("check"), done))),
    );
    tools.querySelector("input").focus();
  });
  if (item.enrolled) tools.append(h("span", { class: "note" }, "taught"));
  else tools.append(item.known_unknown ? h("span", { class: "note" }, "kept as unknown") : "", correct);
  tools.append(iconButton("close", `Forget ${item.name}`, () => forgetPhoto(item)));
  return h(
    "li",
    { class: item.is_unknown ? "is-unknown" : "is-known" },
    picture(item.thumbnail, ""),
    h(
      "p",
      {},
      h("b", {}, item.label),
      " ",
      h("span", { class: "note" }, percent(item.probability), item.is_unknown ? `, nearest ${item.nearest}` : null),
      h("span", { class: "file" }, item.name),
    ),
    tools,
  );
}
