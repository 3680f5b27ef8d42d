// A long list in pages: its children stay, those of other pages are hidden.

import { h } from "./dom.js";

/** Returns show(first): hides what is not on the page; with first, it goes back to the beginning. */
export function paged(list, size, what) {
  let page = 0;
  const count = h("span", { class: "note", role: "status" });
  const newer = h("button", { type: "button", class: "button small", onclick: () => turn(-1) }, "Newer");
  const older = h("button", { type: "button", class: "button small", onclick: () => turn(+1) }, "Older");
  const bar = h("nav", { class: "row pages", "aria-label": `Pages of ${what}`, hidden: true }, newer, count, older);
  list.after(bar);

  function turn(by) {
    page += by;
    show();
    const button = by < 0 ? newer : older;
    (button.disabled ? (by < 0 ? older : newer) : button).focus({ preventScroll: true });
    list.scrollIntoView({ block: "nearest" });
  }

  function show(first = false) {
    const n = list.children.length;
    const last = Math.max(0, Math.ceil(n / size) - 1);
    page = first ? 0 : Math.min(page, last);
    [...list.children].forEach((child, i) => (child.hidden = Math.floor(i / size) !== page));
    bar.hidden = last === 0;
    newer.disabled = page === 0;
    older.disabled = page === last;
    count.textContent = `${page * size + 1} to ${Math.min(n, (page + 1) * size)} of ${n} ${what}`;
  }

  return show;
}
