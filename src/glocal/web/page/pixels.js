// A photo to the pixels that the encoder sees.  Resizing repeats Pillow's arithmetic, so that both give the same bytes.

const LARGEST = 16_777_216; // pixels of a canvas that every phone allows
const SUPPORT = { bilinear: 1, bicubic: 2 };
const BITS = 22; // of Pillow's fixed-point weights

/** Blob -> {data, width, height}, RGB, upright, on white. */
export async function decode(blob) {
  const options = { colorSpaceConversion: "none", imageOrientation: "from-image" };
  let image = await createImageBitmap(blob, options);
  const shrink = Math.sqrt(LARGEST / (image.width * image.height));
  if (shrink < 1) image = await createImageBitmap(blob, { ...options, resizeWidth: Math.floor(image.width * shrink), resizeQuality: "high" });
  const { width, height } = image;
  const context = new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true });
  context.fillStyle = "white";
  context.fillRect(0, 0, width, height);
  context.drawImage(image, 0, 0);
  const rgba = context.getImageData(0, 0, width, height).data;
  const data = new Uint8Array(width * height * 3);
  for (let from = 0, to = 0; from < rgba.length; from += 4, to += 3) data.set(rgba.subarray(from, from + 3), to);
  return { data, width, height };
}

/** Short side resized, centre cut out: `fit` of glocal.recognizer.photos.images. */
export function fit(image, { size, resize, interpolation }) {
  const { width, height } = image;
  if (width === size && height === size && (resize === null || resize === size)) return image;
  const [short, target] = [Math.min(width, height), resize ?? size];
  if (short !== target) image = resized(image, ...[width, height].map((side) => Math.floor((target * side) / short)), interpolation);
  const [left, top] = [image.width, image.height].map((side) => halfEven((side - size) / 2));
  const data = new Uint8Array(size * size * 3);
  for (let y = 0; y < size; y++) {
    const start = ((top + y) * image.width + left) * 3;
    data.set(image.data.subarray(start, start + size * 3), y * size * 3);
  }
  return { data, width: size, height: size };
}

function resized({ data, width, height }, newWidth, newHeight, interpolation) {
  const rows = pass(data, height, width, newWidth, 3, width * 3, newWidth * 3, interpolation);
  return { data: pass(rows, newWidth, height, newHeight, newWidth * 3, 3, 3, interpolation), width: newWidth, height: newHeight };
}

/** One direction: `lines` of `length` pixels each become `to` pixels; `step` bytes from pixel to pixel. */
function pass(data, lines, length, to, step, fromLine, toLine, interpolation) {
  if (length === to) return data;
  const out = new Uint8Array(lines * to * 3);
  weights(length, to, interpolation).forEach(({ first, weight }, x) => {
    for (let line = 0; line < lines; line++) {
      for (let c = 0; c < 3; c++) {
        let sum = 2 ** (BITS - 1);
        for (let i = 0, at = line * fromLine + first * step + c; i < weight.length; i++, at += step) sum += data[at] * weight[i];
        out[line * toLine + x * step + c] = Math.max(0, Math.min(255, Math.floor(sum / 2 ** BITS)));
      }
    }
  });
  return out;
}

/** Of each new pixel: the old pixels that it is made of. */
function weights(from, to, interpolation) {
  const scale = from / to;
  const wide = Math.max(scale, 1);
  const reach = SUPPORT[interpolation] * wide;
  return Array.from({ length: to }, (_, x) => {
    const centre = (x + 0.5) * scale;
    const first = Math.max(0, Math.trunc(centre - reach + 0.5));
    const last = Math.min(from, Math.trunc(centre + reach + 0.5));
    const raw = Array.from({ length: last - first }, (_, i) => kernel((i + first - centre + 0.5) / wide, interpolation));
    const total = raw.reduce((a, b) => a + b, 0);
    return { first, weight: raw.map((w) => Math.trunc((w / total) * 2 ** BITS + Math.sign(w) / 2)) };
  });
}

function kernel(x, interpolation) {
  const a = -0.5;
  x = Math.abs(x);
  if (interpolation === "bilinear") return Math.max(0, 1 - x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

function halfEven(x) {
  const down = Math.floor(x);
  return x - down === 0.5 ? down + (down % 2) : Math.round(x);
}
