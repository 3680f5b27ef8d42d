// Check: labelled photos, how many of them it gets right, and what each target rate would cost and bring.
// Nothing is taught, and nothing is kept but a threshold that the person sets.

import { call, formOf } from "./api.js";
import { h, percent, picture, plural } from "./dom.js";
import { complain, notice } from "./notices.js";
import { dropZone, filesIn, portions, usable } from "./photos.js";
import { change, store, watch } from "./store.js";

const RATES = {
  accuracy: "Known, and named right",
  named_right: "Known, nearest to its class",
  false_unknown: "Known, but “unknown”",
  caught: "Unknown, and caught",
};
const WORST = 10; // mistakes that are shown
const Z95 = 1.959963984540054;
const find = (id) => document.getElementById(id);
let labelled = []; // {file, label}
let urls = []; // of the mistakes that are shown
let shownFor = null; // version the result is of

export function setUpCheck() {
  dropZone(find("check-drop"), take, (entries) => takeFolders(entries).catch(complain));
  find("check-files").addEventListener("change", (event) => {
    take(usable(event.target.files));
    event.target.value = "";
  });
  find("check-clear").addEventListener("click", () => {
    labelled = [];
    show(null);
    find("check-folder").focus();
  });
  find("check-run").addEventListener("click", () => run().catch(complain));
  watch(({ state }) => {
    if (shownFor !== null && shownFor !== state.version)
      find("check-note").textContent = "The classes or the threshold changed since: check again.";
  });
  show(null);
}

/** Photos from a folder that was chosen are of its class, others of what was typed. */
function take(files) {
  const typed = find("check-label").value.trim();
  const some = files.map((file) => ({ file, label: file.webkitRelativePath?.split("/").at(-2) || typed }));
  if (some.every((each) => each.label)) add(some);
  else notice("Say first what the photos show: the name of a class, or unknown.", { kind: "error" });
}

async function takeFolders(entries) {
  const found = (await filesIn(entries)).filter((each) => each.folder);
  const good = new Set(usable(found.map((each) => each.file)));
  add(found.filter((each) => good.has(each.file)).map(({ file, folder }) => ({ file, label: folder })));
}

function add(some) {
  labelled.push(...some);
  show(null);
}

async function run() {
  const waiting = [...labelled];
  const owner = new Map(waiting.map((each) => [each.file, each]));
  const found = [];
  find("check-run").disabled = true;
  try {
    for (const files of portions([...owner.keys()])) {
      find("check-note").textContent = `Looking at ${plural(waiting.length, "photo")}…`;
      // The place in the list goes along: two photos of a class may have one name.
      const named = files.map((file) => {
        const { label } = owner.get(file);
        return new File([file], `${label}/${waiting.indexOf(owner.get(file))} ${file.name}`, { type: file.type });
      });
      found.push(await call("POST", "/check", { body: formOf({}, named) }));
    }
    if (new Set(found.map((each) => each.version)).size > 1)
      throw new Error("Somebody changed the classes in the meantime. Check again.");
    show(summed(found), waiting);
  } catch (error) {
    show(null);
    complain(error);
  }
}

/** The answers of several requests as those of one. */
function summed(found) {
  const total = (rates) => rates.reduce((sum, { k, n }) => ({ k: sum.k + k, n: sum.n + n }), { k: 0, n: 0 });
  const rate = (name) => total(found.map((each) => each[name]));
  const confusion = new Map();
  for (const each of found)
    for (const [truth, row] of Object.entries(each.confusion)) {
      const sums = confusion.get(truth) ?? new Map();
      for (const [label, n] of Object.entries(row)) sums.set(label, (sums.get(label) ?? 0) + n);
      confusion.set(truth, sums);
    }
  const worst = found.flatMap((each) => each.worst);
  worst.sort((a, b) => b.probabilities[b.label] - a.probabilities[a.label]);
  return {
    version: found[0].version,
    rates: Object.fromEntries(Object.keys(RATES).map((name) => [name, rate(name)])),
    tradeOff: found[0].trade_off.map(({ target }, i) => ({
      target,
      false_unknown: total(found.map((each) => each.trade_off[i].false_unknown)),
      caught: total(found.map((each) => each.trade_off[i].caught)),
    })),
    confusion,
    worst: worst.slice(0, WORST),
    remarks: [
      ...new Set(found.flatMap((each) => Object.values(each.not_enrolled))),
      ...found.flatMap((each) => each.unreadable.map(({ path, error }) => `${shortName(path)}: ${error}`)),
    ],
  };
}

/** result: null while there is none for the photos that were chosen. */
function show(result, photos = []) {
  for (const url of urls) URL.revokeObjectURL(url);
  urls = [];
  shownFor = result?.version ?? null;
  const labels = new Set(labelled.map((each) => each.label));
  find("check-run").disabled = !labelled.length;
  find("check-clear").hidden = !labelled.length;
  find("check-note").textContent = labelled.length
    ? `${plural(labelled.length, "photo")} under ${plural(labels.size, "name")}: ${[...labels].join(", ")}.`
    : "Take photos it was not taught with.";
  find("check-result").hidden = !result;
  if (!result) return;
  find("check-rates").replaceChildren(
    ...Object.entries(RATES).map(([name, words]) => h("div", {}, h("dt", {}, words), h("dd", {}, ...told(result.rates[name])))),
  );
  showTradeOff(result.tradeOff);
  showConfusion(result.confusion);
  find("check-remarks").replaceChildren(...result.remarks.map((text) => h("li", {}, text)));
  find("check-worst-title").textContent = result.worst.length ? "The surest mistakes" : "No mistake";
  find("check-worst").replaceChildren(...result.worst.map((each) => mistake(each, photos)));
}

function told({ k, n }) {
  if (!n) return ["–", h("small", {}, "no such photos")];
  const [low, high] = interval(k, n);
  return [percent(k / n, 1), h("small", {}, `${k} of ${n}; 95 % interval ${percent(low, 1)} to ${percent(high, 1)}`)];
}

/** Of Wilson, as everywhere in glocal: the sums of several requests have one of their own. */
function interval(k, n) {
  const centre = (k + Z95 ** 2 / 2) / (n + Z95 ** 2);
  const half = (Z95 / (n + Z95 ** 2)) * Math.sqrt((k * (n - k)) / n + Z95 ** 2 / 4);
  return [Math.max(0, centre - half), Math.min(1, centre + half)];
}

/** A row for each target rate: what the photos show at it, and a button that sets the threshold for it. */
function showTradeOff(rows) {
  find("check-trade-off-card").hidden = !rows.length;
  find("check-trade-off").replaceChildren(
    ...rows.map(({ target, false_unknown: missed, caught }) =>
      h(
        "tr",
        {},
        h("th", { scope: "row" }, percent(target)),
        h("td", { class: "names" }, ...told(missed)),
        h("td", { class: "names" }, ...told(caught)),
        h("td", {}, setButton(target)),
      ),
    ),
  );
}

function setButton(target) {
  const onclick = () => {
    // With known unknowns it would lie lower than in the table: they may raise the rate up to itself alone.
    const body = { target_rate: target, ...(store.state.known_unknowns.length && { with_unknown: target }) };
    return change("PUT", "/threshold", { body, doing: "Setting the threshold…" });
  };
  const label = `Set the threshold for a target rate of ${percent(target)}`;
  return h("button", { type: "button", class: "quiet", "aria-label": label, onclick }, "Set");
}

/** A row for each name that photos have: right ones, and the mistakes by name. */
function showConfusion(confusion) {
  const names = [...store.state.classes.map((each) => each.name), "unknown"].filter((name) => confusion.has(name));
  find("check-confusion").replaceChildren(
    ...names.map((truth) => {
      const row = confusion.get(truth);
      const total = [...row.values()].reduce((sum, n) => sum + n, 0);
      const wrong = [...row].filter(([label]) => label !== truth).sort((a, b) => b[1] - a[1]);
      return h(
        "tr",
        {},
        h("th", { scope: "row" }, truth),
        h("td", {}, `${row.get(truth) ?? 0} of ${total}`),
        h("td", { class: "names" }, wrong.map(([label, n]) => `${n} ${label}`).join(", ") || "–"),
      );
    }),
  );
}

function mistake(each, photos) {
  const place = Number.parseInt(each.path.slice(each.path.lastIndexOf("/") + 1), 10);
  const url = URL.createObjectURL(photos[place].file);
  urls.push(url);
  const label = h("b", { class: each.is_unknown ? "unknown" : "" }, each.label);
  const words = h(
    "p",
    {},
    label,
    ` ${percent(each.probabilities[each.label])}, but it is `,
    h("b", { class: each.truth === "unknown" ? "unknown" : "" }, each.truth),
    h("small", {}, shortName(each.path)),
  );
  return h("li", { title: each.reason }, picture(url, shortName(each.path)), words);
}

/** Without the place in the list. */
const shortName = (path) => path.replace(/\/\d+ /, "/");
