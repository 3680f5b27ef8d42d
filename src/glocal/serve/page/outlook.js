// What to expect of it, said first: the verdict and three numbers, in the words of the command line.

import { sentence } from "./api.js";
import { h } from "./dom.js";
import { watch } from "./store.js";

const find = (id) => document.getElementById(id);

export function setUpOutlook() {
  watch(({ state }) => {
    find("outlook").hidden = !state.outlook;
    if (!state.outlook) return;
    const [verdict, ...numbers] = state.outlook.lines;
    find("outlook").classList.toggle("bad", state.outlook.usable === false);
    find("outlook-verdict").textContent = sentence(verdict);
    find("outlook-numbers").replaceChildren(
      ...numbers.map((line) => {
        const end = line.indexOf(":");
        const [value, more] = apart(line.slice(end + 1).trim());
        return h("div", {}, h("dt", {}, line.slice(0, end)), h("dd", {}, value, more && h("small", {}, more)));
      }),
    );
  });
}

/** "93.3 % (14 of 15; ...)": the number, and what is in the brackets. */
function apart(text) {
  const start = text.indexOf(" (");
  return start < 0 ? [text, null] : [text.slice(0, start), text.slice(start + 2, -1)];
}
