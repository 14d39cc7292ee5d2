// Keeps the page for use without a connection, and only the page with this sha256: another one is not let in.
const PAGE = "%PAGE%", DIGEST = "%DIGEST%", NAME = `masquerade ${DIGEST}`;
const digest = async (body) =>
  [...new Uint8Array(await crypto.subtle.digest("SHA-256", body))].map((b) => b.toString(16).padStart(2, "0")).join("");

self.addEventListener("install", (event) => event.waitUntil((async () => {
  const response = await fetch(PAGE, { cache: "no-store", credentials: "omit" });
  if (!response.ok || (await digest(await response.clone().arrayBuffer())) !== DIGEST) throw new Error("another page");
  await (await caches.open(NAME)).put(PAGE, response);
  await self.skipWaiting();
})()));

self.addEventListener("activate", (event) => event.waitUntil((async () => {
  for (const name of await caches.keys()) if (name.startsWith("masquerade ") && name !== NAME) await caches.delete(name);
  await self.clients.claim();
})()));

self.addEventListener("fetch", (event) => {
  const url = new URL(event.request.url), home = new URL("./", self.location);
  const page = new URL(PAGE, home);
  if (event.request.method !== "GET" || ![home.pathname, page.pathname].includes(url.pathname)) return;
  event.respondWith((async () => (await (await caches.open(NAME)).match(PAGE)) ?? fetch(event.request))());
});
