// Ask: photos in, answers out, the newest first.

import { call, formOf } from "./api.js";
import { answerCard } from "./answer.js";
import { setUpCamera } from "./camera.js";
import { h, plural } from "./dom.js";
import { complain } from "./notices.js";
import { paged } from "./pages.js";
import { dropZone, portions } from "./photos.js";
import { refreshReview, seen } from "./store.js";

const AT_ONCE = 4; // photos of one request: few, so that the first answers come early
const KEPT = 200; // answers on the page
const MANY = 4; // answers from which on all but the newest are rows
const PAGE = 12;
const find = (id) => document.getElementById(id);
let queue = Promise.resolve();
let turnTo = null; // of the pages

export function setUpAsk() {
  dropZone(find("ask-drop"), ask);
  turnTo = paged(find("answers"), PAGE, "answers");
  const camera = setUpCamera((file) => ask([file]));
  find("answers-clear").addEventListener("click", () => {
    for (const card of [...find("answers").children]) forget(card);
    count();
    find("ask-files").focus();
  });
  return { leave: camera.close };
}

/** One list after the other; the answers come in the order of the questions. */
export function ask(files) {
  const waiting = files.map((file) => {
    const url = URL.createObjectURL(file);
    const image = h("img", { src: url, alt: "" });
    const card = h(
      "li",
      { class: "card answer waiting" },
      h("div", { class: "answer-picture" }, image),
      h("div", { class: "answer-words" }, h("p", { class: "file" }, file.name), h("p", { class: "note" }, "Looking…")),
    );
    card.dataset.url = url;
    return { file, url, card };
  });
  find("answers").prepend(...waiting.map((one) => one.card));
  for (const card of [...find("answers").children].slice(KEPT)) forget(card);
  count(true);
  queue = queue.then(() => answerAll(waiting)).catch(complain);
}

async function answerAll(waiting) {
  const told = [];
  const owner = new Map(waiting.map((one) => [one.file, one]));
  for (const files of portions([...owner.keys()], AT_ONCE)) {
    const some = files.map((file) => owner.get(file));
    try {
      const body = formOf({}, files);
      const onWait = (seconds) => note(some, `The server is busy; asking again in ${seconds} s.`);
      const { version, answers } = await call("POST", "/predict", { body, onWait });
      some.forEach((one, i) => put(one, answers[i]));
      told.push(...answers.map((answer) => (answer.ok ? answer.label : "not answered")));
      await seen(version);
    } catch (error) {
      for (const one of some) put(one, { ok: false, name: one.file.name, error: error.message });
      told.push(...some.map(() => "not answered"));
    }
  }
  find("ask-live").textContent = `${plural(told.length, "answer")}: ${told.join(", ")}`;
  await refreshReview();
}

function put(one, answer) {
  const card = answerCard(answer, one.url);
  card.dataset.url = one.url;
  one.card.replaceWith(card);
}

function note(some, text) {
  for (const one of some) one.card.querySelector(".note").textContent = text;
}

function forget(card) {
  URL.revokeObjectURL(card.dataset.url);
  card.remove();
}

/** fresh: answers came, and they are on the first page. */
function count(fresh = false) {
  const n = find("answers").children.length;
  find("answers").classList.toggle("many", n > MANY);
  turnTo(fresh);
  find("answers-none").hidden = n > 0;
  find("answers-head").hidden = n === 0;
  find("answers-count").textContent = plural(n, "answer");
}
