// Photos to a name or "unknown": the encoder's graphs in WebAssembly, the head and the threshold as in Python.

import { fit } from "./pixels.js";

const PARTS = { E_c: "global", E_f: "local" };
const TYPES = { float32: Float32Array, float16: Uint16Array };

export async function openRecognizer(ort, read) {
  const about = JSON.parse(new TextDecoder().decode(await read("recognizer.json")));
  const bytes = await read("arrays.bin");
  const arrays = Object.fromEntries(
    Object.entries(about.arrays).map(([name, { dtype, shape, offset }]) => {
      const values = new TYPES[dtype](bytes, offset, shape.reduce((a, b) => a * b, 1));
      return [name, { shape, values: dtype === "float16" ? Float32Array.from(values, widened) : values }];
    }),
  );
  const session = async (name) => name && ort.InferenceSession.create(new Uint8Array(await read(name)));
  const members = [];
  for (const each of about.members) members.push({ ...each, graph: await session(each.graph), neck: await session(each.neck) });
  const head = { ...about.head, graph: await session(about.head.graph) };

  /** {data, width, height} -> the answer, with the names of Prediction.to_json(). */
  return { about, predict: async (image) => decide(about, arrays, await scores(ort, head, arrays, await encode(ort, members, image))) };
}

async function encode(ort, members, image) {
  const largest = members.reduce((a, b) => (b.preprocess.size > a.preprocess.size ? b : a));
  const cut = fit(image, largest.preprocess);
  const [vec, local] = [[], []];
  for (const { graph, neck, unit, preprocess } of members) {
    const { size, interpolation } = preprocess;
    const { data } = fit(cut, { size, resize: null, interpolation });
    let out = await graph.run({ images: new ort.Tensor("uint8", data, [1, size, size, 3]) });
    if (neck) out = await neck.run({ map: out.map });
    const lengths = unit ? length(out.vec.data) : 1;
    vec.push(...out.vec.data.map((x) => x / (lengths * Math.sqrt(members.length))));
    if (out.local) local.push(cells(out.local, unit));
  }
  return { vec, local };
}

/** (1, C, h, w) -> one Float32Array of length C per cell. */
function cells({ data, dims: [, channels, height, width] }, unit) {
  return Array.from({ length: height * width }, (_, p) => {
    const cell = Float32Array.from({ length: channels }, (_, c) => data[c * height * width + p]);
    return unit ? cell.map((x) => x / length(cell)) : cell;
  });
}

async function scores(ort, head, arrays, query) {
  if (head.kind === "converted") return byGraph(ort, head, arrays, query);
  const { proto } = arrays;
  if (head.kind === "prototypes") {
    const logits = rows(proto).map((row) => dot(query.vec, row) / length(query.vec) / head.temperature);
    return { logits, score: -Math.max(...logits), parts: {} };
  }
  const vec = arrays.spread ? whitened(query.vec, rows(arrays.spread)) : query.vec;
  const whole = rows(proto).map((row) => dot(vec, row));
  const alpha = rows(arrays.alpha);
  const respond = (kernel) => Array.from({ length: arrays.alpha.shape[1] }, (_, n) => head.weight * kernel.reduce((sum, k, i) => sum + k * alpha[i][n], 0));
  const photo = respond(rows(arrays.vec).map((row) => dot(vec, row)));
  const patch = respond(matches(query.local, arrays, alpha.length));
  const both = whole.map((s, n) => s + photo[n] + patch[n]);
  const best = both.indexOf(Math.max(...both));
  const aside = whole.length; // the column of the known unknowns
  const E_c = photo[aside] - whole[best] - photo[best];
  const E_f = patch[aside] - patch[best];
  return { logits: both.map((s) => s / head.temperature), score: { E: E_c + E_f, E_c, E_f }[head.open_score], parts: { E_c, E_f } };
}

/** Of length 1, without a part of the directions in which photos of one class differ. */
function whitened(vec, spread) {
  const shares = spread.map((row) => dot(vec, row));
  const left = vec.map((x, i) => x - spread.reduce((sum, row, j) => sum + row[i] * shares[j], 0));
  return left.map((x) => x / length(left));
}

/** How well the cells of the photo and of each support photo find their best partners, both ways; mean over members. */
function matches(local, arrays, photos) {
  return Array.from({ length: photos }, (_, i) =>
    local.reduce((sum, ours, member) => {
      const { shape: [, cells], values } = arrays[`cells.${member}`];
      const width = ours[0].length;
      const theirs = Array.from({ length: cells }, (_, v) => values.subarray((i * cells + v) * width, (i * cells + v + 1) * width));
      const cosine = ours.map((a) => theirs.map((b) => dot(a, b)));
      const forth = mean(cosine.map((row) => Math.max(...row)));
      const back = mean(theirs.map((_, v) => Math.max(...cosine.map((row) => row[v]))));
      return sum + (forth + back) / 2 / local.length;
    }, 0),
  );
}

async function byGraph(ort, head, arrays, { vec, local }) {
  const feeds = { vec: new ort.Tensor("float32", Float32Array.from(vec), [1, vec.length]) };
  const map = local.at(-1);
  if (map) feeds.local = new ort.Tensor("float32", Float32Array.from({ length: map.length * map[0].length }, (_, i) => map[i % map.length][Math.floor(i / map.length)]), [1, map[0].length, ...head.map_shape]);
  for (const name of head.state) feeds[name] = new ort.Tensor("float32", arrays[name].values, arrays[name].shape);
  const out = await head.graph.run(Object.fromEntries(Object.entries(feeds).filter(([name]) => head.graph.inputNames.includes(name))));
  const parts = Object.fromEntries(head.parts.map((name) => [name, out[name].data[0]]));
  return { logits: [...out.logits.data], score: out[head.open_score].data[0], parts };
}

function decide({ classes, threshold, usual, steep }, arrays, { logits, score, parts }) {
  const most = Math.max(...logits);
  const best = logits.indexOf(most);
  const open_score = score - (threshold.levels[best] ?? 0);
  const limit = threshold.value ?? Infinity;
  const every = [...logits.map((x) => x - most), (steep * (open_score - limit)) / (threshold.spread || 1)];
  const weight = every.map((x) => Math.exp(Math.max(-700, Math.min(700, x)) - Math.max(0, every.at(-1))));
  const total = weight.reduce((a, b) => a + b, 0);
  const names = [...classes, "unknown"];
  const probabilities = Object.fromEntries(names.map((name, n) => [name, weight[n] / total]));
  const answer = { nearest: classes[best], is_unknown: open_score > limit, open_score, threshold: limit, probabilities };
  return { ...answer, label: answer.is_unknown ? "unknown" : answer.nearest, reason: reason(answer, parts, usual) };
}

function reason({ nearest, is_unknown, open_score, threshold, probabilities }, parts, usual) {
  const share = `${nearest} (${Math.round(100 * probabilities[nearest])} %)`;
  const judged = Object.keys(parts).filter((name) => name in usual);
  const weak = judged.filter((name) => parts[name] > usual[name][1]);
  const listed = (some) => some.map((name) => PARTS[name]).join(" and ");
  const start = is_unknown ? `nearest class ${share}, but` : share;
  if (weak.length) return `${start}${is_unknown ? "" : ", though"} ${listed(weak)} match ${weak.length > 1 ? "are" : "is"} weak`;
  if (is_unknown) return `${start} it is not like it enough: open score ${open_score.toPrecision(3)}, above the threshold ${threshold.toPrecision(3)}`;
  return judged.length ? `${start}: ${listed(judged)} match as usual` : `${start}: it matches`;
}

const dot = (a, b) => { let sum = 0; for (let i = 0; i < a.length; i++) sum += a[i] * b[i]; return sum; };
const length = (a) => Math.max(Math.sqrt(dot(a, a)), 1e-12);
const mean = (a) => a.reduce((x, y) => x + y, 0) / a.length;
const rows = ({ shape: [n, width], values }) => Array.from({ length: n }, (_, i) => values.subarray(i * width, (i + 1) * width));

/** Bits of half precision -> number. */
function widened(bits) {
  const [exponent, fraction] = [(bits >> 10) & 31, bits & 1023];
  const size = exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -14 * (fraction / 1024);
  return bits & 0x8000 ? -size : size;
}
