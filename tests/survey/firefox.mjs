// One person at the page in Firefox, over WebDriver BiDi: node firefox.mjs PACKAGES < plan.json
// The plan is that of test_firefox.py. What happened is printed, and judged there.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { meet } from "./meet.mjs";

const puppeteer = createRequire(`${process.argv[2]}/`)("puppeteer-core").default;
const plan = JSON.parse(readFileSync(0, "utf8")), PATIENCE = 120000;
const browser = await puppeteer.launch({
  browser: "firefox", executablePath: plan.firefox, headless: true, timeout: PATIENCE, protocolTimeout: PATIENCE,
  extraPrefsFirefox: { "intl.accept_languages": "en-GB", "intl.locale.requested": "en-GB" },
});
const told = { version: await browser.version(), axe: {}, requests: [], problems: [] };

class Visit {
  static async at(url) {
    const one = new Visit(), context = await browser.createBrowserContext();
    one.page = await context.newPage();
    await one.page.setViewport({ width: 320, height: 640 });
    one.page.on("request", (request) => told.requests.push([request.method(), request.url()]));
    // what its CSP refuses, a favicon among it, Firefox tells as an error too
    one.page.on("dialog", (dialog) => dialog.accept()); // leaving with answers warns
    one.page.on("pageerror", (error) => /Content-Security-Policy/.test(error) || told.problems.push(String(error)));
    await one.page.goto(url);
    return one;
  }
  // until a function finds something in the page; its CSP lets no other way of waiting in
  async until(found, ...values) {
    for (const end = Date.now() + PATIENCE; Date.now() < end; await new Promise((ok) => setTimeout(ok, 50))) {
      const handle = await this.page.evaluateHandle(found, ...values).catch(() => null); // the page may be moving on
      const value = await handle?.evaluate((one) => Boolean(one)).catch(() => false);
      if (value) return handle;
    }
    throw new Error(`not found: ${found} ${values}`);
  }
  node = (selector, text) => this.until((css, told) => [...document.querySelectorAll(css)].find((one) => one.textContent.trim() === told), selector, text);
  press = async (selector, text) => (await this.node(selector, text)).asElement().click();
  sees = (text) => this.until((told) => document.querySelector("h1")?.textContent.includes(told), text);
  async answer(text) {
    await this.press("label.choice", text);
    await this.press("button", "Next");
  }
  async accessible(name) {
    await this.page.evaluate(readFileSync(plan.axe, "utf8"));
    const [found, fits] = await this.page.evaluate(async (rules) => [
      (await axe.run(document, { runOnly: rules })).violations.map((v) => [v.id, v.nodes.map((n) => n.html)]),
      document.documentElement.scrollWidth <= innerWidth], plan.rules);
    told.axe[name] = [found, fits];
  }
  kept = () => this.page.evaluate(plan.kept);
}

try {
  const one = await Visit.at(plan.url), page = one.page;
  await one.sees(plan.title);
  await one.accessible("start");
  // the vectors of a chosen file by the page's own check, then all of them by the page's own functions
  await one.press("summary", "Check this page");
  await (await one.until(() => document.querySelector("#vectors"))).asElement().uploadFile(plan.vectors);
  await one.press("button", "Run the check");
  const shown = await one.until(() => [...document.querySelectorAll("[role=status]")].find((p) => p.textContent.includes("test values")));
  told.checked = await shown.evaluate((p) => p.textContent);
  told.vectors = await page.evaluate(meet, readFileSync(plan.vectors, "utf8"));
  // another host, an injected script
  told.blocked = await page.evaluate(async (away) => {
    const found = [];
    await fetch(away).catch(() => found.push("fetch"));
    await new Promise((ok) => {
      document.addEventListener("securitypolicyviolation", () => ok(), { once: true });
      const script = document.createElement("script");
      script.textContent = "window.leaked = 1";
      document.body.append(script);
    });
    if (!window.leaked) found.push("script");
    return found;
  }, plan.away);
  // every screen of one whole path
  await one.press("button", "Begin");
  await one.sees("How old");
  await one.answer("30 to 49");
  await one.press("label.choice", "Yes");
  await one.until(() => document.body.textContent.includes("In 19 of 30 cases they are sent unchanged"));
  await one.accessible("question");
  await one.press("button", "Next");
  await one.answer("No");
  await one.answer("None");
  await one.sees("Your answers");
  await one.accessible("review");
  told.reviewed = await page.evaluate(() => [...document.querySelectorAll(".given b")].map((b) => b.textContent));
  told.before = told.requests.filter(([method]) => method === "POST").length;
  await one.press("button", "Send now");
  await one.sees("Sent");
  await one.accessible("sent");
  told.drawn = await page.evaluate(() => [...document.querySelectorAll("tbody tr td")].map((td) => td.firstChild.textContent));
  told.kept = await one.kept();
  told.elsewhere = await page.evaluate(() => [localStorage.length, sessionStorage.length, document.cookie, location.href]);
  // the next person: another link in the same tab, then the back button, in the middle of the questions
  await one.press("button", "Clear this screen");
  told.next = [];
  const leave = [
    () => page.evaluate(() => { location.hash = "next"; }),
    async () => { await page.goto(`${plan.url}manifest.json`); await page.goBack(); },
  ];
  for (const left of leave) {
    await one.press("button", "Answer for another person");
    await one.press("button", "Begin");
    await one.answer("30 to 49");
    await one.press("label.choice", "Yes");
    await left();
    await one.node("button", "Answer for another person");
    told.next.push(await page.evaluate(() => document.querySelectorAll("input:checked").length));
  }
  // from disk
  const two = await Visit.at(plan.disk);
  await two.press("button", "Begin");
  await two.answer("Under 30");
  await two.answer("No");
  await two.answer("None");
  await two.press("button", "Send now");
  await two.sees("Sent");
} finally {
  await browser.close();
}
console.log(JSON.stringify(told));
