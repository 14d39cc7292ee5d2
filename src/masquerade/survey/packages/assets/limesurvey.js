// The script of a LimeSurvey theme: when the form is sent, what was chosen is replaced by what was drawn.
// `S` has the questions, and what reports are drawn by. A question is found by its CSS class, which survey.lss sets.
const form = document.querySelector("#limesurvey");
const boxOf = ({ box }) => form.querySelector(`.${box}`);
const radiosOf = (question) => [...boxOf(question).querySelectorAll('input[type="radio"]')];
const radioOf = (question, code) => radiosOf(question).find((one) => one.value === question.values[code]);

// Codes of the chosen answers: -1 for a question without one, `notAsked` for a question that is not shown.
function codesOf() {
  const codes = {};
  for (const question of S.questions) {
    const asked = Object.entries(question.shown).every(([name, admitted]) => admitted.includes(codes[name]));
    const chosen = radiosOf(question).find((one) => one.checked);
    codes[question.name] = asked ? question.values.indexOf(chosen?.value) : question.notAsked;
    boxOf(question).style.display = asked ? "" : "none";
  }
  return codes;
}

// LimeSurvey keeps a copy of each choice in a hidden field of its own, which is sent too: both are replaced.
async function mask(codes) {
  const reports = await disguise(S.mechanism, codes);
  S.questions.forEach((question) => {
    const drawn = radioOf(question, reports[question.column]);
    drawn.checked = true;
    for (const copy of form.querySelectorAll('input[type="hidden"]')) {
      if (copy.name === `java${drawn.name}`) copy.value = drawn.value;
    }
  });
}

function start() {
  if (!form || !S.questions.some(boxOf)) return; // the first and the last page have no questions
  const complete = S.questions.every((question) => boxOf(question) && question.values.every((_, code) => radioOf(question, code)));
  if (!complete) throw new Error("the questions are not those of survey.lss, or not all on one page");
  for (const question of S.questions) {
    for (const code of question.notOffered) radioOf(question, code).closest("li, .radio-item, .answer-item, label").style.display = "none";
  }
  form.addEventListener("change", codesOf);
  codesOf();
  let state = "open"; // chance is drawn once: a form that was masked is only sent
  form.addEventListener("submit", async (event) => {
    if (state === "masked") return;
    event.preventDefault();
    event.stopImmediatePropagation();
    if (state === "drawing") return;
    const codes = codesOf();
    if (Object.values(codes).some((code) => code < 0)) {
      alert(S.incomplete[document.documentElement.lang.slice(0, 2)] ?? S.incomplete.en);
      return;
    }
    state = "drawing";
    form.style.visibility = "hidden"; // nobody is to see, and answer by, what was drawn
    await mask(codes);
    state = "masked";
    setTimeout(() => form.requestSubmit(event.submitter)); // after all listeners of the first event
  }, { capture: true });
  form.classList.add("masquerade-ready"); // the style sheet hides answers without this class
}

if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
else start();
