// The scores as two histograms back to back: taught photos upwards, recent ones downwards; the threshold between.

import { score, svg } from "./dom.js";

export const THUMB = 22; // pixels: half of it is kept free at both ends, where the slider's thumb stops
const HEIGHT = 240;
const MIDDLE = 120;
const ROOM = 96; // of a bar
const TICKS = 5;

/** values: {histogram, range, saved, candidate}; saved and candidate are scores or null. */
export function drawHistogram(holder, { histogram, range, saved, candidate }) {
  const width = Math.max(holder.clientWidth, 200);
  const [low, high] = range;
  const x = (value) => THUMB / 2 + ((Math.min(Math.max(value, low), high) - low) / (high - low || 1)) * (width - THUMB);
  const threshold = candidate ?? saved;
  const plot = svg("svg", {
    class: "histogram",
    width,
    height: HEIGHT + 26,
    viewBox: `0 0 ${width} ${HEIGHT + 26}`,
    role: "img",
    "aria-label": inWords(histogram, threshold),
  });
  if (threshold !== null) {
    const edge = x(threshold);
    plot.append(svg("rect", { class: "beyond", x: edge, y: 0, width: Math.max(width - edge, 0), height: HEIGHT }));
    if (saved !== null && saved !== threshold)
      plot.append(svg("line", { class: "saved", x1: x(saved), x2: x(saved), y1: 0, y2: HEIGHT }));
    if (width - edge > 90) plot.append(svg("text", { class: "side unknown", x: edge + 14, y: 18 }, "unknown"));
    if (edge > 90) plot.append(svg("text", { class: "side", x: edge - 14, y: 18, "text-anchor": "end" }, "known"));
  }
  plot.append(
    bars(histogram.edges, histogram.support, x, -1, "taught"),
    bars(histogram.edges, histogram.recent, x, 1, "asked"),
  );
  plot.append(svg("line", { class: "ground", x1: 0, x2: width, y1: MIDDLE, y2: MIDDLE }));
  plot.append(ticks(low, high, x));
  if (threshold !== null) plot.append(svg("line", { class: "limit", x1: x(threshold), x2: x(threshold), y1: 0, y2: HEIGHT }));
  holder.querySelector("svg")?.remove();
  holder.prepend(plot);
}

function bars(edges, counts, x, direction, name) {
  const most = Math.max(1, ...counts);
  const group = svg("g", { class: name });
  counts.forEach((n, i) => {
    if (!n) return;
    const left = x(edges[i]);
    const tall = Math.max((n / most) * ROOM, 3);
    const y = direction < 0 ? MIDDLE - tall : MIDDLE;
    group.append(
      svg(
        "rect",
        { x: left + 1, y, width: Math.max(x(edges[i + 1]) - left - 2, 1), height: tall, rx: 2 },
        svg("title", {}, `${n} from ${score(edges[i])} to ${score(edges[i + 1])}`),
      ),
    );
  });
  return group;
}

function ticks(low, high, x) {
  const group = svg("g", { class: "ticks" });
  const step = niceStep((high - low) / TICKS);
  for (let value = Math.ceil(low / step) * step; value <= high; value += step) {
    group.append(
      svg(
        "text",
        { x: x(value), y: HEIGHT + 18, "text-anchor": "middle" },
        score(Math.abs(value) < step / 1e6 ? 0 : value),
      ),
    );
  }
  return group;
}

function niceStep(rough) {
  const size = 10 ** Math.floor(Math.log10(rough || 1));
  return [1, 2, 2.5, 5, 10].map((n) => n * size).find((step) => step >= rough) ?? rough;
}

function inWords({ edges, support, recent }, threshold) {
  const sum = (counts) => counts.reduce((total, n) => total + n, 0);
  const span = `scores from ${score(edges[0])} to ${score(edges.at(-1))}`;
  const line = threshold === null ? "nothing is called unknown" : `unknown begins at ${score(threshold)}`;
  return `Histogram of the ${span}: ${sum(support)} taught photos above, ${sum(recent)} recent ones below; ${line}.`;
}
