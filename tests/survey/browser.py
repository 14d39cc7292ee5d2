"""A real browser, as a phone holds it: Debian's Chromium driven by Playwright."""

from __future__ import annotations

import hashlib
import re
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import expect, sync_playwright
from tests.survey.programs import chromium

VENDOR = Path(__file__).parents[2] / "vendor"
AXE = VENDOR / "axe-core" / "axe.min.js"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PHONE = {"viewport": {"width": 320, "height": 640}, "is_mobile": True, "has_touch": True, "locale": "en-GB"}
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
PATIENCE = 120_000  # milliseconds: a slow machine is no failure
KEPT = """async () => {
  const base = await new Promise((ok, no) => { const r = indexedDB.open('masquerade', 1);
    r.onupgradeneeded = () => r.result.createObjectStore('kept');
    r.onsuccess = () => ok(r.result); r.onerror = no; });
  const all = (r) => new Promise((ok) => { r.onsuccess = () => ok(r.result); });
  const store = base.transaction('kept').objectStore('kept');
  const [keys, values] = [await all(store.getAllKeys()), await all(store.getAll())];
  base.close();
  const plain = (_, v) => v instanceof Uint8Array ? [...v] : v;
  return keys.map((key, i) => [key, JSON.stringify(values[i], plain)]);
}"""


@contextmanager
def running():
    """Run the browser."""
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS, timeout=PATIENCE)
        try:
            yield playwright, browser
        finally:
            browser.close()


class Visit:
    """One person at the page: what they click, and everything that their browser sends."""

    def __init__(self, context, url):
        self.context = context
        context.set_default_timeout(PATIENCE)
        self.page = context.new_page()
        self.problems, self.requests = [], []
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("request", self.noticed)
        self.page.goto(url)

    def noticed(self, request):
        self.requests.append(request)

    def begin(self):
        for box in self.page.locator("[name=agree]").all():
            box.check()
        self.page.get_by_role("button", name="Begin", exact=True).click()
        return self

    def answer(self, label):
        self.page.get_by_role("radio", name=label, exact=True).check()
        self.page.get_by_role("button", name="Next", exact=True).click()
        return self

    def send(self):
        self.page.get_by_role("button", name="Send now").click()
        return self

    def sees(self, title):
        expect(self.page.get_by_role("heading", level=1)).to_have_text(re.compile(title))
        return self

    def kept(self):
        """Return what the browser keeps for the page, by key without the survey's id."""
        return {key.partition(" ")[2]: value for key, value in self.page.evaluate(KEPT)}

    def posted(self):
        """Return the bodies that were sent to the collector."""
        return [request.post_data for request in self.requests if request.method == "POST"]

    def accessible(self):
        """Assert that axe finds nothing, and that nothing is wider than the screen."""
        text = AXE.read_text(encoding="utf-8")
        assert hashlib.sha256(text.encode()).hexdigest() in (VENDOR / "README.md").read_text(encoding="utf-8")
        self.page.evaluate(text)  # by the debugger: the page itself lets in no other script
        found = self.page.evaluate(
            "async (rules) => (await axe.run(document, {runOnly: rules})).violations"
            ".map((v) => [v.id, v.nodes.map((n) => n.html)])",
            RULES,
        )
        assert not found, found
        wide = self.page.evaluate("document.documentElement.scrollWidth")  # on a phone innerWidth grows
        assert wide <= self.page.viewport_size["width"]
        return self
