// Inputs of questions that are not a single choice: numbers, dates, items to tick, tables of choices.
const refusal = (names, checked, changed) => names.every((name) => questions[name].refused != null) &&
  choiceOf("checkbox", "refused", "refused", checked, questions[names[0]].answers[lang][questions[names[0]].refused], changed);
const isRefused = (names) => names.every((name) => questions[name].refused != null && answers[name] === questions[name].refused);

// A number or a date: the group of the policy that it is in.
function measure(q, changed) {
  const { number } = q, shown = h("output", { class: "group", role: "status" });
  const said = () => (number.codes.includes(answers[q.name]) ? t("number_group", { g: q.answers[lang][answers[q.name]] }) : "");
  const take = (value, written) => {
    answers[q.name] = value === null ? null : binOf(number, value);
    typed[q.name] = value === null ? "" : written;
    box.querySelectorAll("[name=refused]").forEach((one) => (one.checked = false));
    shown.textContent = said();
    changed();
  };
  const box = h("div", {}, number.date ? dated(q, take) : numbered(q, take), p(shown), refusal([q.name], isRefused([q.name]), (event) => {
    answers[q.name] = event.target.checked ? q.refused : null;
    typed[q.name] = "";
    box.querySelectorAll("[name=answer]").forEach((one) => (one.value = ""));
    shown.textContent = said();
    changed();
  }));
  shown.textContent = said();
  return box;
}
function numbered(q, take) {
  const { number } = q, unit = number.unit?.[lang] ?? "", value = h("b", {}, typed[q.name] ?? "");
  const input = h("input", { type: number.slider ? "range" : "number", name: "answer", inputmode: "decimal", autocomplete: "off",
    min: number.min, max: number.max, step: number.step, value: typed[q.name] ?? (number.slider ? number.min : ""), "aria-describedby": "range",
    oninput: () => {
      const n = input.value === "" ? NaN : Number(input.value);
      take(n >= number.min && n <= number.max ? n : null, `${input.value} ${unit}`.trim());
      value.textContent = number.slider ? input.value : "";
    } });
  return [h("label", {}, t("number_label"), " ", input), number.slider ? value : "", unit && ` ${unit}`,
    h("p", { id: "range" }, t("number_range", { a: num(number.min), b: num(number.max) }))];
}
function dated(q, take) {
  const { number } = q, years = Array.from({ length: number.max - number.min + 1 }, (_, i) => number.max - i);
  const months = Array.from({ length: 12 }, (_, i) => [i + 1, new Intl.DateTimeFormat(lang, { month: "long", timeZone: "UTC" }).format(Date.UTC(2024, i, 1))]);
  const [before, then] = (typed[q.name] ?? "").split("/");
  const pick = (key, all, chosen) => h("select", { name: "answer", onchange: read, "aria-label": t(key) },
    h("option", { value: "" }, t(key)), all.map(([n, label]) => h("option", { value: n, selected: String(n) === chosen }, label)));
  const [month, year] = [pick("date_month", months, before), pick("date_year", years.map((n) => [n, String(n)]), then)];
  function read() {
    const [m, y] = [Number(month.value), Number(year.value)], now = new Date();
    take(m && y ? (number.date === "age" ? yearsSince(y, m, now.getFullYear(), now.getMonth() + 1) : y) : null, `${m}/${y}`);
  }
  return buttons(month, year);
}

// Items to tick: each is a variable with two answers. Nothing ticked is an answer only with "none of these".
function ticks(names, changed) {
  const isTicked = (name) => answers[name] === questions[name].ticked[0];
  const isNone = () => names.every((name) => answers[name] === questions[name].ticked[1]);
  const all = (codeOf) => names.forEach((name) => (answers[name] = codeOf(questions[name])));
  const box = h("div", {}, p(t("several")),
    names.map((name) => choiceOf("checkbox", name, "yes", isTicked(name), questions[name].text[lang], read)),
    choiceOf("checkbox", "none", "none", isNone(), t("none_of"), (event) => single(event.target, (q) => q.ticked[1])),
    refusal(names, isRefused(names), (event) => single(event.target, (q) => q.refused)));
  function single(input, codeOf) {
    const checked = input.checked;
    box.querySelectorAll("input").forEach((one) => (one.checked = one === input && checked));
    all(checked ? codeOf : () => null);
    changed();
  }
  function read() {
    box.querySelectorAll("[name=none], [name=refused]").forEach((one) => (one.checked = false));
    const ticked = new Set([...box.querySelectorAll("[value=yes]:checked")].map((one) => one.name));
    all((q) => (ticked.size ? q.ticked[ticked.has(q.name) ? 0 : 1] : null));
    changed();
  }
  return box;
}

// A table of choices: one line for each item.
const grid = (names, changed) => names.map((name) => {
  const q = questions[name];
  return h("fieldset", { class: "line" }, h("legend", {}, q.text[lang]), h("div", { class: "scale" }, q.answers[lang].map((label, value) => !(q.notOffered ?? []).includes(value) &&
    choiceOf("radio", name, value, answers[name] === value, label, () => { answers[name] = value; changed(); }))));
});

// A text in people's own words.
function written(q) {
  // Some browsers send what is typed to their makers, to check its spelling or to suggest words.
  const input = h("textarea", { name: "answer", rows: 4, maxlength: q.most, autocomplete: "off", spellcheck: "false", writingsuggestions: "false", "aria-describedby": "range", oninput: () => {
    answers[q.name] = input.value.replace(/[\u0000-\u0009\u000b-\u001f]|\p{Cs}/gu, " ").trim();
  } });
  input.value = answers[q.name] ?? "";
  return [h("label", {}, t("number_label"), input), h("p", { id: "range" }, t("text_most", { n: num(q.most) }))];
}

const inputs = (names, changed) => {
  const q = questions[names[0]];
  return q.most ? written(q) : q.type === "multiple" ? ticks(names, changed) : q.type === "matrix" ? grid(names, changed) : measure(q, changed);
};
const problemOf = (q) => (q.type === "matrix" ? t("required_each") : !q.number ? t("required")
  : t(q.number.date ? "date_bad" : "number_range", { a: q.number.date ? q.number.min : num(q.number.min), b: q.number.date ? q.number.max : num(q.number.max) }));
