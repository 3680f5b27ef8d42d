// Keeps every file of this page, so that it answers without a network.  The export fills in the two constants.
const CACHE = "glocal-@IDENTITY@";
const FILES = "@FILES@";

self.addEventListener("install", (event) => event.waitUntil(caches.open(CACHE).then((cache) => cache.addAll(FILES)).then(() => self.skipWaiting())));
self.addEventListener("activate", (event) =>
  event.waitUntil(caches.keys().then((names) => Promise.all(names.filter((name) => name.startsWith("glocal-") && name !== CACHE).map((name) => caches.delete(name)))).then(() => self.clients.claim())),
);
self.addEventListener("fetch", (event) => event.respondWith(caches.match(event.request).then((kept) => kept ?? fetch(event.request))));
