// Caches the page for offline use, and only the page with this sha256. Every page of the same origin can write
// into the caches, so the sha256 is checked whenever the page is read from a cache.
const PAGE = "%PAGE%", DIGEST = "%DIGEST%", FOLDER = new URL("./", self.location);
// A scope contains no blanks, so no other survey's cache names have this prefix.
const OWN = `masquerade ${self.registration.scope} `, NAME = OWN + DIGEST;
const HEADERS = {
  "Content-Type": "text/html; charset=utf-8", "Content-Security-Policy": "frame-ancestors 'none'", "X-Frame-Options": "DENY",
  "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cross-Origin-Opener-Policy": "same-origin",
  "Cross-Origin-Embedder-Policy": "require-corp", "Cross-Origin-Resource-Policy": "same-origin",
};

// The page in a response, with the collector's headers only; null if it is a different page.
async function genuine(response) {
  if (!response?.ok) return null;
  const body = await response.arrayBuffer(), hash = new Uint8Array(await crypto.subtle.digest("SHA-256", body));
  return [...hash].map((b) => b.toString(16).padStart(2, "0")).join("") === DIGEST ? new Response(body, { headers: HEADERS }) : null;
}

self.addEventListener("install", (event) => event.waitUntil((async () => {
  const cache = await caches.open(NAME);
  // The address of the folder is served from the cache only if it is the survey's page.
  for (const path of [PAGE, "./"]) {
    const page = await genuine(await fetch(path, { cache: "no-store", credentials: "omit" }).catch(() => null));
    if (page) await cache.put(path, page);
    else if (path === PAGE) throw new Error("another page");
  }
  await self.skipWaiting();
})()));

self.addEventListener("activate", (event) => event.waitUntil((async () => {
  for (const name of await caches.keys()) if (name.startsWith(OWN) && name !== NAME) await caches.delete(name);
  await self.clients.claim();
})()));

self.addEventListener("fetch", (event) => {
  const url = new URL(event.request.url), served = [FOLDER.pathname, new URL(PAGE, FOLDER).pathname];
  if (event.request.method !== "GET" || url.origin !== FOLDER.origin || !served.includes(url.pathname)) return;
  event.respondWith((async () => (await genuine(await (await caches.open(NAME)).match(url.pathname))) ?? fetch(event.request))());
});
