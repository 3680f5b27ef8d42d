// Decide: the threshold as a slider over the scores; what would change is shown before it is saved.

import { call } from "./api.js";
import { h, icon, keyed, percent, picture, plural, score } from "./dom.js";
import { drawHistogram } from "./histogram.js";
import { complain } from "./notices.js";
import { change, store, watch } from "./store.js";

const PAUSE = 120; // milliseconds without a movement before the server is asked
const STEPS = 200;
const find = (id) => document.getElementById(id);
let now = null; // the threshold on the server, with histogram and range
let wanted = null; // what the person is trying: {value} or {target_rate, with_unknown}
let preview = null; // what the server says about it
let known = null; // version and recent photos `now` was read for
let asking = new AbortController();
let timer = 0;

export function setUpDecide() {
  find("slider").addEventListener("input", () => attempt({ value: Number(find("slider").value) }));
  typed("threshold-value", (value) => attempt({ value }));
  typed("promise", (value) => tryRate({ target_rate: value / 100 }));
  typed("with-unknown", (value) => tryRate({ with_unknown: value / 100 }));
  find("decide-discard").addEventListener("click", discard);
  find("decision").addEventListener("submit", save);
  new ResizeObserver(() => now && draw()).observe(find("chart"));
  watch(() => find("decide").hidden || load());
  return { enter: load, leave: () => asking.abort() };
}

/** With every key that leaves a number, not only when the field is left; without one there is nothing to save. */
function typed(id, use) {
  find(id).addEventListener("input", ({ target }) => {
    if (target.value !== "" && target.checkValidity()) use(Number(target.value));
    else find("decide-save").disabled = true;
  });
  find(id).addEventListener("change", ({ target }) => target.value === "" && now && show());
}

/** Whether somebody is in a field that holds no number yet: an answer that comes meanwhile does not offer to save. */
function halfTyped() {
  const field = document.activeElement;
  return field?.matches("#decision input[type=number]") && (field.value === "" || !field.checkValidity());
}

async function load() {
  if (!store.state?.classes.length) return;
  const needed = `${store.state.version} ${store.review?.recent[0]?.id} ${store.review?.recent.length}`;
  if (known === needed) return;
  known = needed;
  try {
    const read = await call("GET", "/threshold");
    if (known !== needed) return; // a later state is on its way
    now = read;
    if (wanted && isSaved(wanted)) wanted = null;
    if (wanted) await look();
    else
      preview = await call(
        "GET",
        previewPath(now.source === "user" ? { value: now.value } : { target_rate: now.target_rate }),
      );
    show();
  } catch (error) {
    known = null;
    complain(error);
  }
}

const isSaved = ({ value, ...wish }) =>
  value === undefined
    ? now.source !== "user" && Object.entries(savedRates()).every(([name, saved]) => wish[name] === saved)
    : now.source === "user" && value === now.value;

/** The target rates on the server, also while the threshold is set by hand. */
const savedRates = () => ({
  target_rate: now.target_rate,
  with_unknown: now.with_unknown ?? undefined,
});

/** Tries a target rate with another part; what known unknowns may raise it to is not less than itself. */
function tryRate(part) {
  if (!now) return;
  const wish = { ...savedRates(), ...(wanted && !("value" in wanted) ? wanted : {}), ...part };
  if (wish.with_unknown !== undefined) wish.with_unknown = Math.max(wish.with_unknown, wish.target_rate);
  attempt(wish);
}

function attempt(next) {
  if (!now) return;
  wanted = next;
  if ("value" in next) preview = { ...preview, value: next.value, expected_false_unknown: null };
  show();
  clearTimeout(timer);
  timer = setTimeout(() => look().then(show, complain), PAUSE);
}

/** Asks what the wish would change; an older question is dropped. */
async function look() {
  asking.abort();
  asking = new AbortController();
  preview = await call("GET", previewPath(wanted), { signal: asking.signal });
}

function previewPath(wish) {
  const given = Object.entries(wish).filter(([, value]) => value !== undefined);
  return `/threshold/preview?${new URLSearchParams(given)}`;
}

function discard() {
  wanted = null;
  known = null;
  clearTimeout(timer);
  asking.abort();
  load().then(() => find("slider").focus());
}

async function save(event) {
  event.preventDefault();
  if (!wanted) return;
  if (await change("PUT", "/threshold", { body: wanted, doing: "Saving the threshold…" })) discard();
}

function show() {
  const value = wanted ? (preview?.value ?? null) : now.value;
  const [low, high] = now.range;
  const slider = find("slider");
  slider.min = low;
  slider.max = high;
  slider.step = (high - low) / STEPS || "any";
  slider.value = value ?? high;
  slider.setAttribute("aria-valuetext", value === null ? "nothing is unknown" : score(value));
  if (document.activeElement !== find("threshold-value"))
    find("threshold-value").value = value === null ? "" : Number(value.toPrecision(4));
  if (document.activeElement !== find("promise")) find("promise").value = rateShown();
  find("decide-save").disabled = !wanted || halfTyped();
  find("decide-discard").disabled = !wanted;
  find("decide-summary").textContent = summary();
  showRate();
  showFacts();
  showChanges();
  draw();
}

function rateShown() {
  if (wanted && "value" in wanted) return "";
  if (!wanted && now.source === "user") return "";
  return Number((100 * (wanted?.target_rate ?? now.target_rate)).toPrecision(3));
}

function draw() {
  const candidate = wanted ? (preview?.value ?? null) : null;
  drawHistogram(find("chart"), { histogram: now.histogram, range: now.range, saved: now.value, candidate });
}

function showRate() {
  const byHand = wanted ? "value" in wanted : now.source === "user";
  find("with-unknown-field").hidden = !store.state.known_unknowns.length;
  const most = wanted?.with_unknown ?? now.with_unknown;
  if (document.activeElement !== find("with-unknown"))
    find("with-unknown").value = byHand || most === null ? "" : Number((100 * most).toPrecision(3));
}

function summary() {
  if (wanted && "value" in wanted) return "Set by hand it has no target rate, and it stays when classes change.";
  if (wanted) return target(wanted);
  if (now.value === null) return "Nothing is called unknown: there are too few photos to say where unknown begins.";
  if (now.source === "user")
    return "Set by hand: it has no target rate, and it stays when classes change, until you choose a rate again.";
  return target(now);
}

function target({ target_rate: most, with_unknown: raised }) {
  const more = raised > most && store.state.known_unknowns.length;
  const or = more ? `, or up to ${share(raised)} where that catches more of the known unknowns` : "";
  return `Target: ${share(most)} of the photos of your classes are called unknown on average${or}.`;
}

const share = (value) => `${Number((100 * value).toPrecision(3))} %`;

function showFacts() {
  const expected = wanted ? preview?.expected_false_unknown : (now.expected ?? preview?.expected_false_unknown);
  const interval = wanted ? null : now.interval;
  const range = interval
    ? h("small", {}, `95 % interval ${percent(interval[0], 1)} to ${percent(interval[1], 1)}`)
    : null;
  const rows = [
    ["Expected false unknowns", expected === null || expected === undefined ? "–" : percent(expected, 1), range],
  ];
  if (preview?.n_support)
    rows.push(["Taught photos called unknown", `${preview.support_rejected} of ${preview.n_support}`, null]);
  find("decide-facts").replaceChildren(
    ...rows.map(([name, value, more]) => h("div", {}, h("dt", {}, name), h("dd", {}, value, more))),
  );
}

function showChanges() {
  const list = wanted && preview?.would_change ? preview.would_change : [];
  const recent = preview?.n_recent ?? 0;
  find("changes-summary").textContent = !wanted
    ? "Move the line: the recent answers that would become others appear here before anything is saved."
    : list.length
      ? `${list.length} of ${plural(recent, "recent answer")} would change:`
      : recent
        ? `None of the ${plural(recent, "recent answer")} would change.`
        : "There are no recent answers to compare with. Ask about some photos first.";
  keyed(find("would-change"), list, {
    key: (item) => item.id,
    build: (item) =>
      h(
        "li",
        {},
        picture(`/queries/${encodeURIComponent(item.id)}/thumbnail`, item.name),
        h(
          "p",
          {},
          named(item.from),
          icon("arrow"),
          h("span", { class: "unseen" }, " becomes "),
          named(item.to),
          h("small", {}, item.name),
        ),
      ),
  });
}

const named = (label) => h("b", { class: label === "unknown" ? "unknown" : "" }, label);
