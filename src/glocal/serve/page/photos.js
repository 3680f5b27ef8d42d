// Photos from people: files they choose, drop or paste.

import { notice } from "./notices.js";
import { store } from "./store.js";

const PICTURE = /^image\//;
const NAMED = /\.(avif|bmp|gif|heic|heif|jpe?g|png|tiff?|webp)$/i; // some systems give no type

/** The usable ones; a line says what was left out. */
export function usable(files) {
  const every = [...files];
  const most = store.state?.limits?.bytes ?? Infinity;
  const pictures = every.filter((file) => PICTURE.test(file.type) || NAMED.test(file.name));
  const good = pictures.filter((file) => file.size <= most);
  if (pictures.length < every.length)
    notice("Only photos can be used; something else was left out.", { kind: "error" });
  if (good.length < pictures.length)
    notice(`Left out what is larger than ${Math.floor(most / 1e6)} MB.`, { kind: "error" });
  return good;
}

/** Lists that the server takes at once: not too many photos, and together no larger than one may be. */
export function portions(files, most = store.state?.limits?.images ?? 16) {
  const room = store.state?.limits?.bytes ?? Infinity;
  const found = [];
  let size = 0;
  for (const file of files) {
    if (!found.length || found.at(-1).length >= most || size + file.size > room) {
      found.push([]);
      size = 0;
    }
    found.at(-1).push(file);
    size += file.size;
  }
  return found;
}

/** Files dropped on the element, or chosen with its file input, go to take(files); folders to takeFolders, if any. */
export function dropZone(element, take, takeFolders = null) {
  const input = element.querySelector("input[type=file]");
  input?.addEventListener("change", () => {
    const files = usable(input.files);
    input.value = ""; // the same file may be chosen again
    if (files.length) take(files);
  });
  let depth = 0; // dragenter and dragleave also come from the children
  element.addEventListener("dragenter", (event) => {
    if (!carriesFiles(event)) return;
    depth += 1;
    element.classList.add("over");
  });
  element.addEventListener("dragleave", () => {
    depth = Math.max(0, depth - 1);
    if (!depth) element.classList.remove("over");
  });
  element.addEventListener("drop", (event) => {
    if (!carriesFiles(event)) return;
    event.preventDefault();
    event.stopPropagation();
    depth = 0;
    element.classList.remove("over");
    document.body.classList.remove("dragging");
    const entries = [...event.dataTransfer.items].map((item) => item.webkitGetAsEntry?.()).filter((entry) => entry);
    if (entries.some((entry) => entry.isDirectory)) {
      if (takeFolders) takeFolders(entries);
      else notice("Drop photos, not folders: open the folder and take the photos in it.", { kind: "error" });
      return;
    }
    const files = usable(event.dataTransfer.files);
    if (files.length) take(files);
  });
}

/** All files in dropped folders, each with the name of the folder that it is in: {file, folder}. */
export async function filesIn(entries) {
  const found = [];
  for (const entry of entries) {
    if (entry.isFile) {
      const file = await new Promise((done, fail) => entry.file(done, fail));
      found.push({ file, folder: entry.fullPath.split("/").at(-2) });
      continue;
    }
    const reader = entry.createReader();
    for (;;) {
      const some = await new Promise((done, fail) => reader.readEntries(done, fail)); // a hundred at a time
      if (!some.length) break;
      found.push(...(await filesIn(some)));
    }
  }
  return found;
}

function carriesFiles(event) {
  return [...(event.dataTransfer?.types ?? [])].includes("Files");
}

/** A photo dropped beside every zone must not replace the page; and the zones show while something is dragged. */
export function guardPage() {
  addEventListener("dragover", (event) => {
    if (!carriesFiles(event)) return;
    event.preventDefault();
    document.body.classList.add("dragging");
  });
  addEventListener("drop", (event) => {
    if (carriesFiles(event)) event.preventDefault();
    document.body.classList.remove("dragging");
  });
  addEventListener("dragleave", (event) => {
    if (event.relatedTarget === null) document.body.classList.remove("dragging");
  });
}

export function pastedPhotos(event) {
  const files = [...(event.clipboardData?.files ?? [])];
  return files.length ? usable(files) : [];
}
