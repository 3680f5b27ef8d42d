// The page: photos in, answers on top of each other, the newest first.

import { decode } from "./pixels.js";
import { openRecognizer } from "./recognizer.js";
import * as ort from "./runtime/ort.wasm.bundle.min.mjs";

const SHOWN = 4; // bars of an answer
const h = (name, text = "", attributes = {}) => Object.assign(document.createElement(name), { textContent: text, ...attributes });
const say = (text) => (document.querySelector("#state").textContent = text);

async function read(name) {
  const response = await fetch(name);
  if (!response.ok) throw new Error(`${name} is missing; export the page again`);
  return response.arrayBuffer();
}

function card(name, address, answer) {
  const item = h("li", "", { className: answer.is_unknown ? "unknown" : "known" });
  const bars = h("ul", "", { className: "bars" });
  for (const [label, share] of Object.entries(answer.probabilities).sort((a, b) => b[1] - a[1]).slice(0, SHOWN)) {
    const bar = h("li", `${label} ${Math.round(100 * share)} %`);
    bar.style.setProperty("--share", `${100 * share}%`);
    bars.append(bar);
  }
  item.append(h("img", "", { src: address, alt: name }), h("h2", answer.label), bars, h("p", `${answer.reason}.`));
  return item;
}

async function start() {
  if ("serviceWorker" in navigator) navigator.serviceWorker.register("sw.js");
  ort.env.wasm.numThreads = 1; // more need headers that a plain host does not send
  const packed = new Blob([await read("runtime/ort.wasm.gz")]).stream().pipeThrough(new DecompressionStream("gzip"));
  ort.env.wasm.wasmBinary = await new Response(packed).arrayBuffer();
  const recognizer = await openRecognizer(ort, read);
  const { name, classes } = recognizer.about;
  document.title = name;
  document.querySelector("h1").textContent = name;
  document.querySelector("#classes").append(...classes.map((each) => h("li", each)));
  const input = document.querySelector("input");
  input.addEventListener("change", async () => {
    const files = [...input.files];
    for (const [i, file] of files.entries()) {
      say(`Photo ${i + 1} of ${files.length}`);
      try {
        document.querySelector("#answers").prepend(card(file.name, URL.createObjectURL(file), await recognizer.predict(await decode(file))));
      } catch (error) {
        document.querySelector("#answers").prepend(h("li", `${file.name}: this file cannot be read as a photo (${error.message}).`));
      }
    }
    say("Ready.");
    input.value = "";
  });
  input.disabled = false;
  window.recognizer = { predict: async (blob) => recognizer.predict(await decode(blob)) }; // for scripts
  say("Ready.");
}

start().catch((error) => say(`The page cannot start: ${error.message}.`));
