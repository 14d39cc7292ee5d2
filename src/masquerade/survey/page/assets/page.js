// The page: one question per screen. Answers are kept only in this script's memory, until they are sent.
const text = new TextEncoder(), NS = "http://www.w3.org/2000/svg";
// All questions in the order of the file; those in people's own words are not part of the mechanism.
const inFile = [...S.questions, ...(S.texts ?? [])].sort((a, b) => a.screen - b.screen);
const questions = Object.fromEntries(inFile.map((q) => [q.name, q]));
const MODES = ["device", "spinner", "dice", "birthday"];
let lang = S.languages.find((l) => navigator.languages.some((n) => n.split("-")[0] === l.split("-")[0])) ?? S.languages[0];
let screen = start, answers = Object.create(null), blocks = {}, order = [], mode = 0, token = null, last = null, another = false, moved = false;
let code, panelCode, ticket = "token", invitation = location.hash.slice(1);
// What was typed, warnings that were read, screens of this visit for the browser's Back, and the lock after sending.
let typed = Object.create(null), warned = new Set(), trail = [], at = 0, visit, tag = history.state?.tag ?? null, locked = false;

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
const on = addEventListener;
const $ = (id) => document.getElementById(id), random = (n) => crypto.getRandomValues(new Uint8Array(n));
const p = (...inner) => h("p", {}, ...inner), note = (...inner) => h("div", { class: "note" }, ...inner);
const buttons = (...inner) => h("div", { class: "row" }, ...inner);
const fold = (key, ...inner) => h("details", {}, h("summary", {}, t(key)), ...inner);
const field = (key, name) => h("label", {}, t(key), h("input", { type: "text", name, autocapitalize: "none", spellcheck: "false" }));
const choiceOf = (type, name, value, checked, label, onchange) => h("label", { class: "choice" },
  h("input", { type, name, value, checked, onchange }), label);
const paragraphs = (told) => told.split(/\n\s*\n/).map((one) => p(one));
const num = (n) => n.toLocaleString(lang);
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

// Storage that survives a reload: waiting reports, the dealt block, a token, the mark "answered".
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
const keyOf = (name) => `${S.id} ${name}`;
const get = (name) => kept("readonly", (s) => s.get(keyOf(name)), () => memory.get(keyOf(name)));
const put = (name, value) => kept("readwrite", (s) => s.put(value, keyOf(name)), () => memory.set(keyOf(name), value));
const drop = (name) => kept("readwrite", (s) => s.delete(keyOf(name)), () => memory.delete(keyOf(name)));
const queued = async () => (await kept("readonly", (s) => s.getAllKeys(), () => [...memory.keys()]))
  .filter((key) => key.startsWith(keyOf("queue "))).map((key) => key.slice(keyOf("").length));

// All messages have the same number of bytes.
function padded(values) {
  const all = new Uint8Array(S.size).fill(32);
  all.set(text.encode(JSON.stringify(values)));
  return all;
}
const post = (place, values) => fetch(`${S.collector}/v1/${place}`, {
  method: "POST", body: padded(values), headers: { "Content-Type": "text/plain", "Accept-Language": "*" },
  credentials: "omit", referrerPolicy: "no-referrer", cache: "no-store", redirect: "error", signal: AbortSignal.timeout?.(6e4),
});
let flushing = Promise.resolve({});
// Send waiting reports; returns the result of each: true, a reason for its refusal, or nothing.
function flush() {
  return (flushing = flushing.catch(() => {}).then(async () => {
    const found = {};
    for (const name of await queued()) {
      const entry = await get(name);
      if (!entry) continue; // withdrawn
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
// Whether a report was drawn here before: after a refusal or a failure, people must not draw again unawares.
const answered = () => get("mark");
async function told() {
  const n = (await queued()).length;
  $("queue").replaceChildren(...(n ? [t("waiting", { n }), " ", h("button", { type: "button", onclick: flush }, t("again"))] : []));
}

// The browser's Back goes a screen back. After sending, the screen stays until it is cleared or left.
// Only the newest entry of the history has the mark of an invitation.
const keepPlace = (how, mark = tag, ...more) => { try { history[how]({ tag: mark, visit, at }, "", ...more); } catch { /* some pages from disk */ } };
function show(next) {
  if (!locked) {
    trail = [...trail.slice(0, at + 1), next];
    keepPlace("replaceState", null);
    at += 1;
    keepPlace("pushState");
  }
  turn(next);
}
function turn(next) {
  screen = next;
  moved = true;
  render();
}
function restart() {
  [trail, at, visit, locked] = [[start], 0, hex(random(8)), false];
  keepPlace("replaceState");
}
on("popstate", ({ state }) => {
  if (locked) return;
  at = state?.visit === visit ? state.at : 0;
  keepPlace("replaceState");
  turn(trail[at] ?? start);
});
on("beforeunload", (event) => { if (!locked && Object.keys(answers).length) event.preventDefault(); });
const back = () => button(t("back"), () => history.back());
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
const groupOf = (name) => groups().find((group) => group.names.includes(name)) ?? { names: [name], columns: [] };
const blockOf = (group) => blocks[groups().indexOf(group)];
// The questions of a group that are asked: those of its block, or all. Several questions share one draw.
const membersOf = (group) => (group.channels ? blocksOf(group).members[blockOf(group)] : [...group.names.keys()]).map((j) => group.names[j]);
const sizesOf = (names) => names.map((name) => questions[name].answers[lang].length);
const isJoint = (group) => group.channels || (group.channel && group.names.length > 1);
// Several questions with one sheet share a screen: that of the first question.
const isSheet = (group) => mode && isJoint(group);
const firstOf = (group) => order.find((name) => membersOf(group).includes(name));
const channelOf = (group) => {
  if (!group.channels) return group.channel;
  const isCells = blockOf(group) < blocksOf(group).cells;
  return group.channels[isCells ? sizesOf(membersOf(group)).reduce((n, size) => n * size, 1) : 2 ** group.k];
};
const combined = (names, code) => digits(code, sizesOf(names)).map((one, j) => questions[names[j]].answers[lang][one]).join(" · ");
const labelled = (q) => {
  const group = groupOf(q.name), names = membersOf(group);
  if (isSheet(group)) return Array.from({ length: channelOf(group)[0] }, (_, i) => `${i + 1}: ${combined(names, i)}`);
  return mode && group.channel ? labelsOf(group) : q.answers?.[lang];
};
// A bound in percent as cases of 100, or of more if it has decimals; the belief before is of as many.
function beliefs(after) {
  const scale = 10 ** (after.split(".")[1]?.length ?? 0);
  const cases = (n) => t("cases", { k: num(Math.round(n * scale)), m: num(100 * scale) });
  return { b: cases(5), p: cases(Number(after)) };
}
function chance(weight, total, all) {
  const fits = (m) => all.every((one) => (one * m) % total === 0n), told = (m) => t("of", { k: weight * m / total, m });
  for (const m of [10n, 100n]) if (fits(m)) return told(m);
  for (let m = 2n; m < 1000n; m++) if (fits(m)) return told(m);
  for (let m = 100n; ; m *= 10n) {
    const k = (weight * m * 2n + total) / (2n * total);
    if (k > 0n && k < m) return t("about", { k: num(k), m: num(m) });
  }
}
const sum = (row) => row.reduce((all, [, weight]) => all + BigInt(weight), 0n);
// All odds of a row are out of the same number.
const odds = (row, report) => chance(BigInt((row.find(([one]) => one === report) ?? [0, "0"])[1]), sum(row), row.map(([, weight]) => BigInt(weight)));
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
  const hit = parts.find((part) => part.report === at), inside = random(1)[0] / 256;
  const angle = hit && 360 * (hit.before + hit.share * (.1 + .8 * inside));
  const told = parts.slice(0, 6).map((part) => `${labels[part.report]}: ${odds(row, part.report)}`);
  return h("div", { class: hit ? "spin small" : "spin" },
    h("svg", { viewBox: "0 0 100 100", role: "img", "aria-label": `${t("spinner", { a: own })}. ${told.join("; ")}${hit ? `. ${t("spinner_at", { r: labels[at] })}` : ""}` },
      parts.map((part) => part.share === 1 ? h("circle", { cx: 50, cy: 50, r: 46, class: part.colour }) : [
        h("path", { d: part.path, class: part.colour }), h("path", { d: part.path, class: "edge" })]),
      hit && h("g", { transform: `rotate(${angle} 50 50)` }, h("path", { d: "M50 9L55 52A5 5 0 1 1 45 52Z", class: "hand turn" }))),
    !hit && h("ul", { "aria-hidden": "true" }, parts.slice(0, 6).map((part, i) => h("li", {}, h("i", { class: part.colour }), told[i]))));
}
// For a symmetric channel: the odds that the answer itself is sent, or any other.
const keeping = ([size, same, other]) => [[0, same], [1, BigInt(other) * BigInt(size - 1)]];
const keptSpinner = (channel, at) => spinner(keeping(channel), [t("answers_own"), t("answers_other")], t("answers_own"), at);
function explained(q, chosen, several) {
  const group = groupOf(q.name), channel = channelOf(group);
  if (!channel) return [];
  if (mode) return [p(t("mode_text"))];
  const bound = p(q.bound ? t("bound", beliefs(q.bound)) : t("bound_none"));
  const plain = !Array.isArray(channel[0]);
  if (isJoint(group)) {
    if (!plain) return [p(t("how_text")), bound];
    return [p(t(group.channels ? "odds_block" : "odds_joint", { n: group.names.length, p: odds(keeping(channel), 0) })), keptSpinner(channel), bound];
  }
  const labels = labelsOf(group), given = q.answers[lang], row = (i) => rowOf(channel, i), said = [];
  if (given.length === 2 && labels.length === 2)
    said.push(t("odds_two", { a: given[0], r: labels[0], p: odds(row(0), 0), b: given[1], q: odds(row(1), 0) }));
  else if (plain) said.push(t("odds_same", { p: odds(keeping(channel), 0) }));
  const wheel = () => (chosen == null ? p(t("spinner_choose")) : spinner(row(chosen), labels, given[chosen]));
  return [said.map((one) => p(one)), several ? [] : wheel(), bound];
}

// The questions to ask: those of the dealt blocks whose conditions hold.
function asked() {
  return order.filter((name) => {
    const group = groupOf(name);
    return isSheet(group) ? firstOf(group) === name : membersOf(group).includes(name) && isOpen(questions, answers, name);
  });
}

// Items of one question share a screen.
const screensOf = (names) => names.reduce((all, name) => {
  const last = all.at(-1), q = questions[name];
  if (last && q.intro && questions[last[0]].screen === q.screen) last.push(name);
  else all.push([name]);
  return all;
}, []);
const steps = () => screensOf(asked());
// All screens that there may be: their number does not change on the way.
const screens = () => (mode ? steps() : screensOf(order.filter((name) => membersOf(groupOf(name)).includes(name))));

function start() {
  const form = h("form", { autocomplete: "off", novalidate: true, onsubmit: begin });
  const clear = inFile.filter((q) => q.bound === undefined), column = (key) => h("th", { scope: "col" }, t(key));
  form.append(...[
    S.agree && note(h("h2", {}, t("agree")), choiceOf("checkbox", "agree", "yes", false, S.agree[lang])),
    S.panel && recovery(),
    S.own && p(h("label", {}, t("mode"), h("br"), h("select", { name: "mode" }, MODES.map((name, i) => h("option", { value: i }, t(`mode_${name}`)))))),
    // People do not see this field; programs that fill in all fields do.
    h("div", { class: "trap", "aria-hidden": "true" }, h("label", {}, t("trap"), h("input", { type: "text", name: "website", tabindex: -1, autocomplete: "off" }))),
    h("p", { id: "problem", class: "bad", role: "alert" }),
    buttons(button(t("begin"), null, true)),
  ].filter(Boolean));
  return [
    title(S.title[lang]), paragraphs(S.consent[lang]), h("h2", {}, t("contact")), paragraphs(S.contact[lang]),
    note(clear[0] && [p(h("b", {}, t("clear_first"))), h("ul", {}, clear.map((q) => h("li", {}, q.text[lang], q.number && ` (${t("clear_group", { g: q.answers[lang][q.number.codes[0]] })})`))), S.texts && p(h("b", {}, t("text_clear")))],
      p(t(clear[0] ? "promise_clear" : "promise")), S.bound[lang].map((one) => p(h("b", {}, one)))),
    h("h2", {}, t("seen")),
    h("table", { class: "views" }, h("thead", {}, h("tr", {}, ["seen_who", "seen_answers", "seen_sent"].map(column))),
      h("tbody", {}, S.views[lang].map(([who, lines, sent, level]) => h("tr", {}, h("th", { scope: "row" }, who),
        h("td", {}, lines.map((line, i) => h("p", { class: level === "no" && i === lines.length - 1 ? "good" : "bad" }, line))), h("td", {}, sent))))),
    p(t("network")), p(t(clear[0] ? "stored_clear" : "not_stored")), S.panel && p(t("stored_panel")),
    p(until(), " ", t("withdraw_how")), S.deleted && p(t("deleted", { day: S.deleted[lang] })),
    S.information && [h("h2", {}, t("info")), S.information.map(([name, told]) => [h("h3", {}, t(`info_${name}`)), paragraphs(told[lang])])],
    p(t("stop")),
    last && !another ? note(p(outcome(last)), !S.panel && (last === true || last === "waits") && p(t("answered_twice")), button(t("anew"), () => { another = true; restart(); turn(start); })) : form,
    fold("how", p(t("how_text"))),
    checking(), withdrawing(),
  ];
}
// A question that decides who is asked. Its answer stays here.
function screening() {
  const q = S.screening;
  return h("form", { autocomplete: "off", novalidate: true, onsubmit: (event) => {
    event.preventDefault();
    const chosen = new FormData(event.target).get("answer");
    if (chosen === null) problem(t("required"));
    else if (q.admits.includes(Number(chosen))) enter();
    else show(() => [title(t("screened")), q.end ? paragraphs(q.end[lang]) : p(t("screened_text"))]);
  } }, h("fieldset", {}, h("legend", {}, title(q.text[lang])), q.help && p(q.help[lang]),
    q.answers.map((label, value) => choiceOf("radio", "answer", value, false, label[lang]))),
  h("p", { id: "problem", class: "bad", role: "alert" }), buttons(back(), button(t("next"), null, true)));
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
const outcome = (what) => (what === true || what === "waits" ? t("answered") : what === "withdrawn" ? t(what) : t("refused", { why: t(what) }));
const problem = (told) => { $("problem").textContent = told; };
async function begin(event) {
  event.preventDefault();
  const form = new FormData(event.target);
  problem("");
  clearAnswers(); // this may be the next person: start without chosen answers
  if (form.get("website")) return problem(t("trap_full"));
  if (S.agree && !form.get("agree")) return problem(t("agree_required"));
  if (hex(random(16)) === hex(random(16))) return problem(t("no_chance"));
  panelCode = code;
  if (S.panel) {
    const given = unspell(form.get("code")), b = given.slice(0, 16);
    if (form.get("code") && !(given.length === 18 && hex(await checked(b)) === hex(given))) return problem(t("recovery_bad"));
    if (form.get("code")) panelCode = b;
    else if (!form.get("written")) return problem(t("recovery_new"));
  }
  mode = Number(form.get("mode") ?? 0);
  if (S.screening) return show(screening);
  await enter();
}
async function enter() {
  if (S.issuer && !(await invited())) return;
  const all = screensOf(inFile.map((q) => q.name));
  if (S.order === "random") for (let i = all.length - 1; i > 0; i--) {
    const j = await draw(Array.from({ length: i + 1 }, (_, k) => [k, "1"]), freshWords);
    [all[i], all[j]] = [all[j], all[i]];
  }
  order = all.flat();
  await dealt();
  go(0);
}
// Blocks are dealt once, before the first question, and survive a reload: they reveal nothing.
async function dealt() {
  blocks = (await get("blocks")) ?? {};
  const words = S.panel ? memoWords(await panelKey(panelCode, S.policy)) : freshWords, all = S.mechanism.groups;
  for (const [i, group] of all[0].entries()) if (group.channels) {
    const block = blocks[i] ?? (await deal(group, words, i));
    all.forEach((_, stratum) => (blocks[stratum * all[0].length + i] = block));
  }
  if (!S.panel) await put("blocks", blocks);
}
// A token for the invitation. Its signer does not see it, and cannot link it to the invitation later.
async function invited() {
  // From the address, or after a reload of this tab: never use a token that another person left here.
  tag = invitation ? hex(await sha256(text.encode(invitation))) : tag;
  ticket = `token ${tag}`;
  let state = await get(ticket);
  if (!state && !invitation) return problem(t("invited"));
  if (!state) await put(ticket, (state = { invitation, input: random(32), blind: randomBlind() }));
  keepPlace("replaceState", tag, location.pathname + location.search);
  if (!state.output) {
    let reply;
    try { reply = await post("token", { invitation: state.invitation, blinded: hex(await blinded(state.input, state.blind)) }); } catch { return problem(t("no_token")); }
    if (!reply.ok) {
      if (reply.status < 429) await drop(ticket);
      return problem(t("refused", { why: t({ 409: "used", 410: "closed" }[reply.status] ?? "invalid") }));
    }
    try {
      const signed = await reply.json();
      const output = await finalized(state.input, state.blind, unhex(signed.evaluated), unhex(signed.proof), unhex(S.issuer));
      await put(ticket, (state = { input: state.input, output }));
    } catch { return problem(t("no_token")); }
  }
  token = hex(state.input) + hex(state.output);
  return true;
}

// The next screen: a question, before it what people should know of it, or the review.
function go(i) {
  const all = steps(), q = all[i] && questions[all[i][0]];
  if (q?.caution && !warned.has(q.screen)) show(caution(i, all[i]));
  else show(q ? question(i) : review);
}
const caution = (i, names) => () => {
  const goOn = (skip) => () => {
    warned.add(questions[names[0]].screen);
    if (skip) names.forEach((name) => (answers[name] = questions[name].refused));
    go(skip ? i + 1 : i);
  };
  return [title(t("caution")), paragraphs(questions[names[0]].caution[lang]), p(t("stop")),
    buttons(back(), names.every((name) => questions[name].refused != null) && button(t("caution_skip"), goOn(true)), button(t("caution_next"), goOn(false), true))];
};
const question = (i) => () => {
  const all = steps(), names = all[i] ?? all.at(-1), q = questions[names[0]], group = groupOf(q.name), whole = screens();
  const given = labelled(q), together = isSheet(group) && membersOf(group).map((name) => questions[name]);
  const told = note(), wrong = h("p", { class: "bad", role: "alert" }), isClear = (name) => !channelOf(groupOf(name));
  const warning = names.some(isClear) && clearNote(q, names.filter(isClear), names.length);
  const explain = () => {
    const lines = explainedAll(names).flat(9);
    told.replaceChildren(...lines);
    told.hidden = !lines.length;
  };
  const changed = () => { wrong.textContent = ""; explain(); };
  explain();
  const varies = !mode && inFile.some((one) => Object.keys(one.shown).length);
  return [
    h("p", { class: "step", id: "step" }, t(varies ? "progress_most" : "progress", { i: i + 1, n: whole.length })),
    h("progress", { max: whole.length, value: whole.findIndex((one) => one.includes(q.name)) + 1, "aria-labelledby": "step" }),
    h("form", { autocomplete: "off", novalidate: true, onsubmit: (event) => {
      event.preventDefault();
      const open = names.filter((name) => answers[name] == null);
      if (open.every((name) => questions[name].optional)) {
        open.forEach((name) => (answers[name] = questions[name].refused ?? ""));
        go(i + 1);
      } else {
        wrong.textContent = S.types ? problemOf(q) : t("required");
        event.target.querySelector("input, select").focus();
      }
    } },
      h("fieldset", {}, h("legend", {}, title(together ? t("own_title") : (q.intro ?? q.text)[lang])),
        together ? [h("ol", {}, together.map((one) => h("li", {}, one.text[lang], one.help && p(one.help[lang]), one.notAsked != null && p(t("own_skip", { a: one.answers[lang][one.notAsked] }))))), p(t("own_rule", { n: given.length }))]
          : q.help && p(q.help[lang]),
        warning, q.optional && p(t("optional")),
        q.type && q.type !== "scale" ? inputs(names, changed) : h("div", { class: q.type === "scale" && "scale" },
          given.map((label, value) => (mode || !(q.notOffered ?? []).includes(value)) && choiceOf("radio", "answer", value, value === answers[q.name], label,
            () => { answers[q.name] = value; changed(); })))),
      wrong, buttons(back(), button(t("next"), null, true)), told, i === 0 && p(t("memory"))),
  ];
};
// People read before they answer that an answer is not disguised; of some items, which.
const clearNote = (q, some, all) => note(some.length < all && p(some.map((name) => questions[name].text[lang]).join(" · ")),
  p(h("b", {}, t(q.most ? "text_clear" : q.number ? "clear_number" : "clear"))));
// Each way in which the questions of a screen are disguised, once.
const explainedAll = (names) => {
  const seen = new Map(names.map((name) => [JSON.stringify([channelOf(groupOf(name)) ?? null, isJoint(groupOf(name)) ? firstOf(groupOf(name)) : ""]), name]));
  return [...seen.values()].map((name) => explained(questions[name], answers[name], names.length > 1));
};
on("keydown", (event) => {
  const radios = document.querySelectorAll("input[type=radio]"), n = Number(event.key) - 1;
  if (/number|text|range|select/.test(event.target.type ?? "") || new Set([...radios].map((one) => one.name)).size > 1) return;
  if (radios[n] && !event.ctrlKey && !event.metaKey && !event.altKey) radios[n].click();
});

function review() {
  const full = (q) => (q.intro ? `${q.intro[lang]} ${q.text[lang]}` : q.text[lang]), all = steps();
  const textOf = (name) => (isSheet(groupOf(name)) ? membersOf(groupOf(name)) : [name]).map((one) => full(questions[one])).join(" · ");
  const answerOf = (name) => questions[name].most ? answers[name] || t("text_none") : `${typed[name] ? `${typed[name]}: ` : ""}${labelled(questions[name])[answers[name]]}`;
  return [
    title(t("review")), p(t("review_text")),
    h("ul", { class: "given" }, asked().map((name) => h("li", {}, h("span", {}, textOf(name)), h("b", {}, answerOf(name)),
      h("button", { type: "button", "aria-label": `${t("change")}: ${textOf(name)}`, onclick: () => show(question(all.findIndex((one) => one.includes(name)))) }, t("change"))))),
    buttons(back(), button(t("send"), send, true)),
  ];
}
// The codes of all questions; a question that was not shown gets its "not asked" code. With sheets, the codes
// are already the reports.
function codesOf(given) {
  if (mode) return groups().reduce((found, group) => {
    const value = given[firstOf(group)];
    const own = group.channels ? [blockOf(group), value] : isSheet(group) ? digits(value, group.reportSizes) : group.names.map((name) => given[name]);
    group.columns.forEach((column, j) => (found[column] = own[j]));
    return found;
  }, []);
  const open = new Set(asked());
  return Object.fromEntries(S.questions.map((q) => [q.name, open.has(q.name) ? given[q.name] : q.notAsked ?? 0]));
}
// What people wrote in their own words, by question; line breaks are the only control characters.
const textsOf = (open) => Object.fromEntries((S.texts ?? []).filter(({ name }) => open.has(name) && answers[name]).map(({ name }) => [name, answers[name]]));
const idOf = async (secret) => hex((await sha256(Uint8Array.from([...text.encode("masquerade withdrawal"), ...secret]))).subarray(0, 16));
// Draw once, store the report until it has been sent, and show the result.
async function deliver(codes, words, first, texts) {
  const reports = mode ? codes : await disguise(S.mechanism, codes, words, blocks);
  const secret = random(10), id = await idOf(secret);
  const entry = { policy: S.policy, id, mode, reports, token, ...(S.agreed && { agreed: S.agreed }), ...(S.texts && { texts }) }, name = keyOf(`queue ${id}`);
  await kept("readwrite", (s) => {
    if (first) s.add("waits", keyOf("mark")); // fails, and rolls back the rest, if another tab was first
    return s.put(entry, name);
  }, () => memory.set(keyOf("mark"), "waits").set(name, entry));
  await Promise.all([drop("blocks"), drop(ticket)]);
  tag = null;
  if (history.state) history.replaceState(null, "");
  return { id, reports, secret, what: (await flush())[id] };
}
function clearAnswers() {
  answers = Object.create(null);
  typed = Object.create(null);
  warned = new Set();
}
function forget() {
  clearAnswers();
  code = panelCode = random(16);
}
async function send() {
  if (screen !== review) return;
  locked = true;
  screen = () => [title(t("sending"))]; // before the first await: a second click must not send again
  const codes = codesOf(answers), open = new Set(asked()), texts = textsOf(open), ownCode = panelCode, rows = sentRows(groups(), texts), turned = mode ? [] : [codes, open];
  forget();
  moved = true;
  render();
  last = another ? null : await answered();
  if (last) return show(start);
  let drawn;
  try { drawn = await deliver(codes, S.panel ? memoWords(await panelKey(ownCode, S.policy)) : freshWords, !another, texts); } catch { last = await answered(); }
  if (!drawn) return show(last ? start : () => [title(t("no_chance"))]);
  const { id, reports, secret, what } = drawn;
  show(what === true ? sent(rows(reports, ...turned), secret) : what ? () => [title(outcome(what))] : waiting(id, rows(reports), secret));
}
const waiting = (id, rows, secret) => {
  const poll = setInterval(async () => {
    if ((await queued()).includes(`queue ${id}`)) return;
    clearInterval(poll);
    const what = await get("mark");
    show(what === true ? sent(rows, secret) : () => [title(outcome(what))]);
  }, 500);
  return () => [title(t("waiting_title")), p(t("waiting", { n: 1 })), closing(), withdrawal(secret)];
};
// Rows of what was sent: question, reported answer and, with codes, the spinner with its pointer.
const sentRows = (all, texts) => {
  const dealt = all.map((group) => group.channels && [membersOf(group), channelOf(group), blocksOf(group).cells]);
  const written = Object.entries(texts).map(([name, told]) => [() => questions[name].text[lang], () => told, null, inFile.indexOf(questions[name])]);
  return (reports, codes, open) => inOrder([...written, ...all.flatMap((group, i) => {
    const [names, channel, cells] = dealt[i] ?? [group.names, group.channel], told = group.columns.map((column) => reports[column]);
    const isBlock = told[0] < cells, given = isBlock ? digits(told[1], sizesOf(names)) : told;
    const whole = codes && isJoint(group) && !Array.isArray(channel[0]) && (isBlock || !cells);
    return given.map((code, j) => {
      const column = S.columns[group.columns[j]], q = questions[isBlock ? names[j] : column.name];
      const labels = () => (isBlock ? q.answers : column.labels)[lang];
      return [() => (q ? [q.intro?.[lang], q.text[lang]].filter(Boolean).join(" ") : column.name), () => labels()[code],
        whole ? !j && (() => keptSpinner(channel, names.every((name, k) => codes[name] === given[k]) ? 0 : 1))
          : codes && channel && !cells && !names[1] && open.has(q.name) && (() => spinner(rowOf(channel, codes[q.name]), labels(), q.answers[lang][codes[q.name]], code)),
        inFile.indexOf(q)];
    });
  })]);
};
const inOrder = (rows) => rows.map((row, i) => [row, i]).sort(([a, i], [b, j]) => a[3] - b[3] || i - j).map(([row]) => row);
const sent = (rows, secret) => () => [
  title(t("sent")), p(t("sent_text")),
  h("table", { class: "wide" }, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, t("asked")), h("th", { scope: "col" }, t("was_sent")))),
    h("tbody", {}, rows.map(([text, label, turn]) => h("tr", {}, h("th", { scope: "row" }, text()), h("td", {}, label(), turn && turn()))))),
  closing(), withdrawal(secret), // the spinners show the answers: offer to clear the screen
  buttons(button(t("clear_screen"), () => location.reload())),
];
const closing = () => S.closing && [
  S.closing.text && paragraphs(S.closing.text[lang]),
  S.closing.help && note(h("h2", {}, t("closing_help")), paragraphs(S.closing.help[lang])),
  S.closing.links[0] && [h("h2", {}, t("closing_links")), h("ul", {}, S.closing.links.map(([label, url]) => h("li", {}, h("a", { href: url, target: "_blank", rel: "noopener noreferrer" }, label[lang]))))],
];
const withdrawal = (secret) => note(p(t("withdraw_code")), p(h("code", {}, spell(secret))),
  p(until()));
const until = () => (S.closes ? t("withdraw_until", { day: S.closes[lang] }) : t("withdraw_open"));
function withdrawing() {
  const output = h("p", { role: "status" });
  return fold("withdraw", h("form", { autocomplete: "off", onsubmit: async (event) => {
    event.preventDefault();
    const secret = unspell(new FormData(event.target).get("secret"));
    // Send nothing else: it may be a recovery code, which would reveal its owner's draws.
    if (secret.length !== 10) return (output.textContent = t("withdraw_none"));
    const name = `queue ${await idOf(secret)}`, waited = (await queued()).includes(name);
    if (waited) await put("mark", "withdrawn");
    await drop(name);
    await flushing.catch(() => {}); // a report that is being sent must arrive before it is withdrawn
    let reply = null;
    try { reply = await post("withdraw", { code: hex(secret) }); } catch { /* shown below */ }
    const ended = reply?.ok || (waited && reply?.status === 404);
    output.textContent = t(ended ? "withdrawn" : reply?.status === 410 ? "closed" : reply?.status < 429 ? "withdraw_none" : "withdraw_later");
    if (ended) await put("mark", "withdrawn"); // answering again would draw again: people must know that
    await told();
  } }, field("withdraw_label", "secret"),
    buttons(button(t("withdraw"), null)), output));
}

// "Check this page": the built-in test vectors, those of a file, and 10,000 draws.
async function check(more = []) {
  let n = 0, bad = 0;
  for (const { channel, rows } of [...S.vectors, ...more]) for (const { code: at, words, reports } of rows) {
    const table = intervals(rowOf(channel, at));
    words.forEach((word, i) => { n++; if (reportOfWord(table, BigInt(`0x${word}`)) !== reports[i]) bad++; });
  }
  const { channel } = S.vectors[0] ?? { channel: [[[0, "1"]]] }, row = rowOf(channel, 0);
  let k = 0;
  for (let i = 0; i < 1e4; i++) if ((await draw(row, freshWords)) === row[0][0]) k++;
  return { n, bad, k, e: Math.round(Number(10000n * BigInt(row[0][1]) / sum(row))), r: S.firstLabel[lang] ?? "" };
}
function checking() {
  const output = h("p", { role: "status" }), input = h("input", { type: "file", accept: ".json", id: "vectors" });
  return fold("check", p(t("check_text")),
    p(h("label", { for: "vectors" }, t("check_file")), h("br"), input),
    buttons(button(t("check_run"), async () => {
      const more = input.files[0] ? JSON.parse(await input.files[0].text()).draws : [];
      const { r, ...counts } = await check(more);
      output.textContent = t("check_done", { r, ...Object.fromEntries(Object.entries(counts).map(([name, n]) => [name, num(n)])) });
    })), output);
}

window.masquerade = Object.freeze({ survey: S, check, deliver, disguise, freshWords, intervals, reportOfWord, rowOf, draw, memoWords, panelKey, qr: S.panel && qr });
on("online", flush);
setInterval(flush, 6e4); // a busy or stopped collector triggers no "online" event
// The back button could show the page as another person left it.
on("pagehide", () => {
  forget();
  $("main").replaceChildren();
});
// A link that differs only after the # sign does not reload the page: it may be another person's invitation.
on("hashchange", () => {
  forget();
  location.reload();
});
on("pageshow", (event) => { if (event.persisted) location.reload(); });
(async () => {
  last = await answered();
  restart();
  render();
  await told();
  await flush();
})();
if ("serviceWorker" in navigator && location.protocol !== "file:") navigator.serviceWorker.register("service-worker.js").catch(() => {});
