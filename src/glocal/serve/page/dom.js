// Elements from names and values. Text only ever becomes text: nothing here reads markup.

const SVG = "http://www.w3.org/2000/svg";

/** An element; attributes that are functions are listeners, booleans switch, children are nodes, strings or nothing. */
export function h(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

export function icon(name) {
  return svg("svg", { class: "icon", "aria-hidden": "true" }, svg("use", { href: `#icon-${name}` }));
}

export function iconButton(name, label, onclick, attributes = {}) {
  return h(
    "button",
    { type: "button", class: "icon-button", "aria-label": label, title: label, onclick, ...attributes },
    icon(name),
  );
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name.replace(/^on/, ""), value);
    else if (name.startsWith("on")) throw new TypeError(`${name} must be a function`);
    else if (typeof value === "boolean") element.toggleAttribute(name, value);
    else if (value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Puts one child per item into a list; those whose item stayed the same stay, and so does the focus. */
export function keyed(list, items, { key, build }) {
  const focused = list.contains(document.activeElement) ? document.activeElement : null;
  const before = new Map([...list.children].map((child) => [child.dataset.key, child]));
  const children = items.map((item) => {
    const name = key(item);
    const seen = JSON.stringify(item);
    const old = before.get(name);
    if (old && old.dataset.seen === seen) return old;
    const fresh = build(item, old);
    fresh.dataset.key = name;
    fresh.dataset.seen = seen;
    return fresh;
  });
  const wanted = new Set(children);
  for (const child of [...list.children]) if (!wanted.has(child)) child.remove();
  children.forEach((child, i) => {
    if (list.children[i] !== child) list.insertBefore(child, list.children[i] ?? null);
  });
  const label = focused?.getAttribute("aria-label");
  if (focused && !focused.isConnected && label)
    [...list.querySelectorAll("[aria-label]")].find((it) => it.ariaLabel === label)?.focus();
}

/** A picture; small ones are shown with their pixels, not as a blur. */
export function picture(src, alt, attributes = {}) {
  const image = h("img", { src, alt, loading: "lazy", decoding: "async", ...attributes });
  image.addEventListener("load", () => image.classList.toggle("tiny", image.naturalWidth <= 64));
  return image;
}

export function plural(n, one, many = `${one}s`) {
  return `${n} ${n === 1 ? one : many}`;
}

export function percent(share, digits = 0) {
  return `${(100 * share).toFixed(digits)}\u00a0%`;
}

/** Scores with three digits that mean something, and a minus that is one. */
export function score(value) {
  return Number(value.toPrecision(3)).toString().replace("-", "−");
}
