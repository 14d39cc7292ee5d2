// The page: one question a screen; answers live in this script's memory until they are sent, nowhere else.
const text = new TextEncoder(), NS = "http://www.w3.org/2000/svg";
const questions = Object.fromEntries(S.questions.map((q) => [q.name, q]));
const REASONS = ["used", "closed", "invalid"];
const MODES = ["device", "spinner", "dice", "birthday"];
let lang = S.languages.find((l) => navigator.languages.some((n) => n.split("-")[0] === l.split("-")[0])) ?? S.languages[0];
let screen = start, answers = Object.create(null), blocks = {}, order = [], mode = 0, token = null, last = null, another = false, moved = false;
let code, invitation = location.hash.slice(1);

const t = (key, values = {}) => S.words[lang][key].replace(/\{(\w+)\}/g, (_, name) => values[name]);
function h(tag, attributes = {}, ...inner) {
  const svg = ["svg", "path", "circle", "g"].includes(tag);
  const node = svg ? document.createElementNS(NS, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== false && value != null) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...inner.flat(9).filter((one) => one != null && one !== false));
  return node;
}
const $ = (id) => document.getElementById(id), random = (n) => crypto.getRandomValues(new Uint8Array(n));
const p = (...inner) => h("p", {}, ...inner), note = (...inner) => h("div", { class: "note" }, ...inner);
const buttons = (...inner) => h("div", { class: "row" }, ...inner);
const fold = (key, ...inner) => h("details", {}, h("summary", {}, t(key)), ...inner);
const field = (key, name) => h("label", {}, t(key), h("input", { type: "text", name, autocapitalize: "none", spellcheck: "false" }));
const paragraphs = (told) => told.split(/\n\s*\n/).map((one) => p(one));
code = random(16);
const hex = (b) => [...b].map((one) => one.toString(16).padStart(2, "0")).join("");
const unhex = (given) => Uint8Array.from(given.match(/../g) ?? [], (one) => parseInt(one, 16));
const sha256 = async (b) => new Uint8Array(await crypto.subtle.digest("SHA-256", b));

// Codes as words of five letters, 16 bits each.
const C = "bdfghjklmnprstvz", V = "aiou";
const spell = (b) => Array.from({ length: b.length / 2 }, (_, i) => {
  const n = b[2 * i] * 256 + b[2 * i + 1];
  return C[n >> 12] + V[(n >> 10) & 3] + C[(n >> 6) & 15] + V[(n >> 4) & 3] + C[n & 15];
}).join(" ");
function unspell(given) {
  const words = given.toLowerCase().match(/[a-z]{5}/g) ?? [];
  return Uint8Array.from(words.flatMap((w) => {
    const n = [...w].reduce((sum, c, i) => (i % 2 ? sum * 4 + V.indexOf(c) : sum * 16 + C.indexOf(c)), 0);
    return [n >> 8, n & 255];
  }));
}
const checked = async (b) => Uint8Array.from([...b, ...(await sha256(b)).subarray(0, 2)]);

// What outlasts a reload: reports that wait, the block that was dealt, a token, the mark "answered".
const memory = new Map();
const opened = new Promise((ok, no) => {
  const request = indexedDB.open("masquerade", 1);
  request.onupgradeneeded = () => request.result.createObjectStore("kept");
  request.onsuccess = () => ok(request.result);
  request.onerror = () => no(request.error);
});
opened.catch(() => {});
async function kept(how, work, without) {
  let base;
  try { base = await opened; } catch { return without(); }
  return new Promise((ok, no) => {
    const change = base.transaction("kept", how, { durability: "strict" }), request = work(change.objectStore("kept"));
    change.oncomplete = () => ok(request.result);
    change.onabort = change.onerror = () => no(change.error);
  });
}
const own = (name) => `${S.id} ${name}`;
const get = (name) => kept("readonly", (s) => s.get(own(name)), () => memory.get(own(name)));
const put = (name, value) => kept("readwrite", (s) => s.put(value, own(name)), () => memory.set(own(name), value));
const drop = (name) => kept("readwrite", (s) => s.delete(own(name)), () => memory.delete(own(name)));
const queued = async () => (await kept("readonly", (s) => s.getAllKeys(), () => [...memory.keys()]))
  .filter((key) => key.startsWith(own("queue "))).map((key) => key.slice(own("").length));

const post = (place, values) => fetch(`${S.collector}/v1/${place}`, {
  method: "POST", body: JSON.stringify(values).padEnd(S.size), headers: { "Content-Type": "text/plain" },
  credentials: "omit", referrerPolicy: "no-referrer", cache: "no-store", redirect: "error", signal: AbortSignal.timeout?.(60000),
});
let flushing = Promise.resolve({});
// Send what waits; returns what became of each: true, a reason why it was refused, or nothing.
function flush() {
  return (flushing = flushing.catch(() => {}).then(async () => {
    const found = {};
    for (const name of await queued()) {
      const entry = await get(name);
      let reply;
      try { reply = await post("reports", entry); } catch { break; }
      if (reply.ok) found[entry.id] = true;
      else if (reply.status === 429 || reply.status >= 500) break;
      else found[entry.id] = { 409: "used", 410: "closed" }[reply.status] ?? "invalid";
      await put("mark", found[entry.id]);
      await drop(name);
    }
    await told();
    return found;
  }));
}
// Whether chance was drawn here before: who is refused, or hears nothing, does not draw again unawares.
const answered = async () => (await get("mark")) ?? ((await queued()).length ? "waits" : null);
async function told() {
  const n = (await queued()).length;
  $("queue").replaceChildren(...(n ? [t("waiting", { n }), " ", h("button", { type: "button", onclick: flush }, t("again"))] : []));
}

function show(next) {
  screen = next;
  moved = true;
  render();
}
function render() {
  document.documentElement.lang = lang;
  document.documentElement.dir = /^(ar|fa|he|ur)/.test(lang) ? "rtl" : "ltr";
  document.title = S.title[lang];
  const choose = h("select", { "aria-label": t("language"), onchange: (e) => { lang = e.target.value; render(); told(); } },
    S.languages.map((l) => h("option", { value: l, lang: l, selected: l === lang }, new Intl.DisplayNames([l], { type: "language" }).of(l))));
  $("head").replaceChildren(...[screen !== start && h("b", {}, S.title[lang]), S.languages.length > 1 && choose].filter(Boolean));
  $("main").replaceChildren(...[screen()].flat(9).filter((one) => one != null && one !== false));
  if (moved) document.querySelector("h1").focus();
  if (moved) scrollTo(0, 0);
}
const title = (told) => h("h1", { tabindex: -1 }, told);
const button = (label, onclick, main) => h("button", { type: onclick ? "button" : "submit", class: main && "main", onclick }, label);

// Odds and spinners.
const groups = () => S.mechanism.groups[S.mechanism.by === null ? 0 : answers[S.mechanism.by] ?? 0];
const groupOf = (name) => groups().find((group) => group.names.includes(name));
function chance(weight, total) {
  for (const m of [100n, 1000n]) if ((weight * m) % total === 0n) return t("of", { k: weight * m / total, m });
  for (let m = 100n; ; m *= 10n) {
    const k = (weight * m * 2n + total) / (2n * total);
    if (k > 0n && k < m) return t("about", { k, m });
  }
}
const sum = (row) => row.reduce((all, [, weight]) => all + BigInt(weight), 0n);
const odds = (row, report) => chance(BigInt((row.find(([one]) => one === report) ?? [0, "0"])[1]), sum(row));
const labelsOf = (group) => S.columns[group.columns[0]].labels[lang];
function spinner(row, labels, own, at) {
  const total = Number(sum(row)), parts = [];
  let before = 0;
  for (const [i, [report, weight]] of row.filter(([, w]) => w !== "0").entries()) {
    const share = Number(weight) / total, point = (x) => `${50 + 46 * Math.sin(2 * Math.PI * x)} ${50 - 46 * Math.cos(2 * Math.PI * x)}`;
    parts.push({ report, share, before, weight, colour: `c${Math.min(i, 5)}`,
      path: `M50 50L${point(before)}A46 46 0 ${share > .5 ? 1 : 0} 1 ${point(before + share)}Z` });
    before += share;
  }
  const hit = parts.find((part) => part.report === at), inside = crypto.getRandomValues(new Uint32Array(1))[0] / 2 ** 32;
  const angle = hit && 360 * (hit.before + hit.share * (.1 + .8 * inside));
  const told = parts.slice(0, 6).map((part) => `${labels[part.report]}: ${odds(row, part.report)}`);
  return h("div", { class: hit ? "spin small" : "spin" },
    h("svg", { viewBox: "0 0 100 100", role: "img", "aria-label": `${t("spinner", { a: own })}. ${told.join("; ")}` },
      parts.map((part) => part.share === 1 ? h("circle", { cx: 50, cy: 50, r: 46, class: part.colour }) : [
        h("path", { d: part.path, class: part.colour }), h("path", { d: part.path, class: "edge" })]),
      hit && h("g", { transform: `rotate(${angle} 50 50)` }, h("path", { d: "M50 9L55 52A5 5 0 1 1 45 52Z", class: "hand turn" }))),
    !hit && h("ul", { "aria-hidden": "true" }, parts.slice(0, 6).map((part, i) => h("li", {}, h("i", { class: part.colour }), told[i]))));
}
function explained(q, chosen) {
  const group = groupOf(q.name), place = groups().indexOf(group), channel = group.channel;
  if (mode) return channel || group.deal ? [p(t("mode_text"))] : [p(h("b", {}, t("clear")))];
  const keep = ([size, same, other]) => chance(BigInt(same), BigInt(same) + BigInt(other) * BigInt(size - 1));
  if (!channel && !group.deal) return [p(h("b", {}, t("clear")))];
  const bound = p(t("bound", { p: t("of", q.bound) }));
  if (group.deal) {
    const { members, cells } = blocksOf(group), at = members[blocks[place]];
    const size = blocks[place] < cells ? at.reduce((n, j) => n * group.sizes[j], 1) : 2 ** group.k;
    return [p(t("odds_block", { p: keep(group.channels[size]) })), bound];
  }
  const plain = !Array.isArray(channel[0]);
  if (group.names.length > 1) return [p(plain ? t("odds_joint", { n: group.names.length, p: keep(channel) }) : t("how_text")), bound];
  const labels = labelsOf(group), given = q.answers[lang], row = (i) => rowOf(channel, i), said = [];
  if (given.length === 2 && labels.length === 2)
    said.push(t("odds_two", { a: given[0], r: labels[0], p: odds(row(0), 0), b: given[1], q: odds(row(1), 0) }));
  else if (plain) said.push(t("odds_same", { p: keep(channel) }));
  return [said.map((one) => p(one)), chosen == null ? p(t("spinner_choose")) : spinner(row(chosen), labels, given[chosen]), bound];
}

// Which questions are asked: those of the blocks that were dealt, and those whose conditions hold.
function asked() {
  const dealt = (name) => {
    const group = groupOf(name), i = groups().indexOf(group);
    return !group.deal || blocksOf(group).members[blocks[i]].some((j) => group.names[j] === name);
  };
  const open = (q) => Object.entries(q.shown).every(([name, codes]) => codes.includes(answers[name]) && open(questions[name]));
  return order.filter((name) => dealt(name) && open(questions[name]));
}

function start() {
  const form = h("form", { autocomplete: "off", novalidate: true, onsubmit: begin });
  const who = [["who_team", "no"], ["who_hacker", "no"], ["who_court", "no"], ["who_screen", "yes"], ["who_device", "yes"]];
  form.append(...[
    S.panel && recovery(),
    S.own && p(h("label", {}, t("mode"), h("br"), h("select", { name: "mode" }, MODES.map((name, i) => h("option", { value: i }, t(`mode_${name}`)))))),
    h("p", { id: "problem", class: "bad", role: "alert" }),
    buttons(button(t("begin"), null, true)),
  ].filter(Boolean));
  return [
    title(S.title[lang]), paragraphs(S.consent[lang]),
    note(p(t("promise"))),
    h("h2", {}, t(S.clear ? "who_disguised" : "who")),
    h("table", {}, h("tbody", {}, who.map(([name, answer]) => h("tr", {}, h("th", { scope: "row" }, t(name)), h("td", { class: answer === "no" ? "good" : "" }, t(answer)))))),
    p(t("bound_all", { p: t("of", S.bound) })), S.clear && p(t("clear_some")), p(t(S.panel ? "stored_panel" : "not_stored")),
    S.deleted && p(t("deleted", { day: S.deleted })),
    last && !another ? note(p(REASONS.includes(last) ? t("refused", { why: t(last) }) : t("answered")), button(t("anew"), () => { another = true; show(start); })) : form,
    fold("how", p(t("how_text"))),
    checking(), withdrawing(),
    h("h2", {}, t("contact")), paragraphs(S.contact[lang]),
  ];
}
function recovery() {
  const shown = h("code", {}), picture = h("div", { class: "qr" });
  checked(code).then((b) => {
    shown.textContent = spell(b);
    picture.append(h("svg", { viewBox: "-4 -4 37 37", role: "img", "aria-label": t("recovery_qr") }, h("path", { d: squares(qr(spell(b))) })));
  });
  return note(h("h2", {}, t("recovery")), p(t("recovery_new")), p(shown), picture,
    h("label", { class: "choice" }, h("input", { type: "checkbox", name: "written" }), t("recovery_kept")),
    fold("recovery_old", p(field("recovery_label", "code"))));
}
const squares = (dark) => dark.flatMap((row, y) => row.map((on, x) => (on ? `M${x} ${y}h1v1h-1z` : ""))).join("");
const problem = (told) => { $("problem").textContent = told; };
async function begin(event) {
  event.preventDefault();
  const form = new FormData(event.target);
  problem("");
  if (S.panel) {
    const given = unspell(form.get("code")), b = given.slice(0, 16);
    if (form.get("code") && !(given.length === 18 && hex(await checked(b)) === hex(given))) return problem(t("recovery_bad"));
    if (form.get("code")) code = b;
    else if (!form.get("written")) return problem(t("recovery_new"));
  }
  mode = Number(form.get("mode") ?? 0);
  if (S.issuer && !(await invited())) return;
  order = S.questions.map((q) => q.name);
  if (S.order === "random") for (let i = order.length - 1; i > 0; i--) {
    const j = await draw(Array.from({ length: i + 1 }, (_, k) => [k, "1"]), freshWords);
    [order[i], order[j]] = [order[j], order[i]];
  }
  await dealt();
  show(question(0));
}
// Blocks are dealt once, before the first question, and are kept over a reload: they tell nothing.
async function dealt() {
  blocks = (await get("blocks")) ?? {};
  const words = S.panel ? memoWords(await panelKey(code, S.policy)) : freshWords, all = S.mechanism.groups;
  for (const [i, group] of all[0].entries()) if (group.deal) {
    const block = blocks[i] ?? (await deal(group, words, i));
    all.forEach((_, stratum) => (blocks[stratum * all[0].length + i] = block));
  }
  if (!S.panel) await put("blocks", blocks);
}
// A token for the invitation; who signs it does not see it, and cannot tell later whose it was.
async function invited() {
  let state = await get("token");
  if (!state && !invitation) return problem(t("invited"));
  if (!state) await put("token", (state = { invitation, input: random(32), blind: randomBlind() }));
  try { history.replaceState(null, "", location.pathname + location.search); } catch { /* pages from disk */ }
  if (!state.output) {
    let reply;
    try { reply = await post("token", { invitation: state.invitation, blinded: hex(await blinded(state.input, state.blind)) }); } catch { return problem(t("no_token")); }
    if (!reply.ok) {
      if (reply.status < 429) await drop("token");
      return problem(t("refused", { why: t({ 409: "used", 410: "closed" }[reply.status] ?? "invalid") }));
    }
    try {
      const signed = await reply.json();
      const output = await finalized(state.input, state.blind, unhex(signed.evaluated), unhex(signed.proof), unhex(S.issuer));
      await put("token", (state = { input: state.input, output }));
    } catch { return problem(t("no_token")); }
  }
  token = hex(state.input) + hex(state.output);
  return true;
}

const question = (i) => () => {
  const names = asked(), q = questions[names[i]], group = groupOf(q.name), chosen = answers[q.name];
  const given = mode && group.channel ? labelsOf(group) : q.answers[lang];
  const told = note(explained(q, chosen)), wrong = h("p", { class: "bad", role: "alert" });
  const choose = (value) => { answers[q.name] = value; wrong.textContent = ""; told.replaceChildren(...explained(q, value).flat(9)); };
  return [
    h("p", { class: "step", id: "step" }, t("progress", { i: i + 1, n: names.length })),
    h("progress", { max: names.length, value: i + 1, "aria-labelledby": "step" }),
    h("form", { autocomplete: "off", novalidate: true, onsubmit: (event) => {
      event.preventDefault();
      if (answers[q.name] == null) { wrong.textContent = t("required"); event.target.querySelector("input").focus(); }
      else show(i + 1 < asked().length ? question(i + 1) : review);
    } },
      h("fieldset", {}, h("legend", {}, title(q.text[lang])), q.help && p(q.help[lang]),
        given.map((label, value) => h("label", { class: "choice" },
          h("input", { type: "radio", name: "answer", value, checked: value === chosen, onchange: () => choose(value) }), label))),
      wrong, buttons(button(t("back"), () => show(i ? question(i - 1) : start)), button(t("next"), null, true)), told),
  ];
};
addEventListener("keydown", (event) => {
  const radios = document.querySelectorAll("input[type=radio]"), n = Number(event.key) - 1;
  if (radios[n] && !event.ctrlKey && !event.metaKey && !event.altKey) radios[n].click();
});

const shownAnswer = (q) => (mode && groupOf(q.name).channel ? labelsOf(groupOf(q.name)) : q.answers[lang])[answers[q.name]];
function review() {
  return [
    title(t("review")), p(t("review_text")),
    h("ul", { class: "given" }, asked().map((name, i) => h("li", {}, h("span", {}, questions[name].text[lang]), h("b", {}, shownAnswer(questions[name])),
      h("button", { type: "button", "aria-label": `${t("change")}: ${questions[name].text[lang]}`, onclick: () => show(question(i)) }, t("change"))))),
    buttons(button(t("back"), () => show(question(asked().length - 1))), button(t("send"), send, true)),
  ];
}
// The codes of everybody's questions: whoever was not shown one answers with what stands for that.
function codesOf(given) {
  const open = new Set(asked());
  return Object.fromEntries(S.questions.map((q) => [q.name, open.has(q.name) ? given[q.name] : q.notAsked ?? 0]));
}
// Draw once, keep what was drawn until it has left, and say what became of it.
async function deliver(codes, words) {
  const reports = mode ? S.columns.map((column) => codes[column.name]) : await disguise(S.mechanism, codes, words, blocks);
  const secret = random(10), id = hex((await sha256(Uint8Array.from([...text.encode("masquerade withdrawal"), ...secret]))).subarray(0, 16));
  await put(`queue ${id}`, { policy: S.policy, id, mode, reports, token });
  await Promise.all([drop("blocks"), drop("token")]);
  return { id, reports, secret, what: (await flush())[id] };
}
function forget() {
  answers = Object.create(null);
  code = random(16);
}
async function send() {
  if (screen !== review) return;
  screen = () => [title(t("sending"))]; // before anything is awaited: a second click sends nothing
  const codes = codesOf(answers), open = new Set(asked()), own = code;
  const spun = mode ? [] : groups().filter((group) => group.channel && group.names.length === 1)
    .map((group) => ({ column: group.columns[0], row: rowOf(group.channel, codes[group.names[0]]), name: group.names[0], at: codes[group.names[0]] }));
  forget();
  moved = true;
  render();
  last = another ? null : await answered();
  if (last) return show(start);
  const { id, reports, secret, what } = await deliver(codes, S.panel ? memoWords(await panelKey(own, S.policy)) : freshWords);
  show(what === true ? sent(reports, spun, open, secret) : what ? () => [title(t("refused", { why: t(what) }))] : waiting(id, reports, secret));
}
const waiting = (id, reports, secret) => {
  const poll = setInterval(async () => {
    if ((await queued()).includes(`queue ${id}`)) return;
    clearInterval(poll);
    const what = await get("mark");
    show(what === true ? sent(reports, [], null, secret) : () => [title(t("refused", { why: t(what) }))]);
  }, 500);
  return () => [title(t("waiting_title")), p(t("waiting", { n: 1 })), withdrawal(secret)];
};
const sent = (reports, spun, open, secret) => () => [
  title(t("sent")), p(t("sent_text")),
  h("table", { class: "wide" }, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, t("asked")), h("th", { scope: "col" }, t("was_sent")))),
    h("tbody", {}, S.columns.map((column, i) => {
      const q = questions[column.name], turned = (!open || open.has(column.name)) && spun.find((one) => one.column === i);
      return h("tr", {}, h("th", { scope: "row" }, q ? q.text[lang] : column.name), h("td", {}, column.labels[lang][reports[i]],
        turned && spinner(turned.row, column.labels[lang], q.answers[lang][turned.at], reports[i])));
    }))),
  withdrawal(secret),
];
const withdrawal = (secret) => note(p(t("withdraw_code")), p(h("code", {}, spell(secret))),
  p(S.closes ? t("withdraw_until", { day: S.closes }) : t("withdraw_open")));
function withdrawing() {
  const output = h("p", { role: "status" });
  return fold("withdraw", h("form", { autocomplete: "off", onsubmit: async (event) => {
    event.preventDefault();
    let reply = null;
    try { reply = await post("withdraw", { code: hex(unspell(new FormData(event.target).get("secret"))) }); } catch { /* told below */ }
    output.textContent = t(reply?.ok ? "withdrawn" : reply ? "withdraw_none" : "no_token");
    if (reply?.ok) await drop("mark");
  } }, field("withdraw_label", "secret"),
    buttons(button(t("withdraw"), null)), output));
}

// "Check this page": the vectors that were built in, those of a file, and 10,000 draws.
async function check(more = []) {
  let n = 0, bad = 0;
  for (const { channel, rows } of [...S.vectors, ...more]) for (const { code: at, words, reports } of rows) {
    const table = intervals(rowOf(channel, at));
    words.forEach((word, i) => { n++; if (reportOfWord(table, BigInt(`0x${word}`)) !== reports[i]) bad++; });
  }
  const { channel } = S.vectors[0] ?? { channel: [[[0, "1"]]] }, row = rowOf(channel, 0);
  let k = 0;
  for (let i = 0; i < 10000; i++) if ((await draw(row, freshWords)) === row[0][0]) k++;
  return { n, bad, k, e: Math.round(Number(10000n * BigInt(row[0][1]) / sum(row))), r: S.firstLabel[lang] ?? "" };
}
function checking() {
  const output = h("p", { role: "status" }), input = h("input", { type: "file", accept: ".json", id: "vectors" });
  return fold("check", p(t("check_text")),
    p(h("label", { for: "vectors" }, t("check_file")), h("br"), input),
    buttons(button(t("check_run"), async () => {
      const more = input.files[0] ? JSON.parse(await input.files[0].text()).draws : [];
      output.textContent = t("check_done", await check(more));
    })), output);
}

window.masquerade = Object.freeze({ survey: S, check, deliver, disguise, freshWords, intervals, reportOfWord, rowOf, draw, memoWords, panelKey, qr: S.panel && qr });
addEventListener("online", flush);
// Who comes back by the back button would find the page as it was left, by somebody else perhaps.
addEventListener("pagehide", () => {
  forget();
  $("main").replaceChildren();
});
addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });
(async () => {
  last = await answered();
  render();
  await told();
  await flush();
})();
if ("serviceWorker" in navigator && location.protocol !== "file:") navigator.serviceWorker.register("service-worker.js").catch(() => {});
