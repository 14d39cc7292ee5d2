// SurveyJS with masquerade: answers are disguised in the browser on completion, and only reports are sent.
//
//   import { disguised, toCollector } from "./masquerade-surveyjs.js";
//   const made = await (await fetch("mechanism.json")).json();
//   const survey = disguised(new Survey.Model(form), made, toCollector(made.collector));
//
// Questions are named as the policy's variables, and the values of their choices as its categories (form.json).
// A person who is not shown a follow-up question reports its `notAsked`, through the channel like any answer.
// Leave off what stores or sends answers earlier: `storeDataInLocalStorage`, `surveyPostId`, `onPartialSend`.
import { disguise } from "./masquerade.js";

const hex = (bytes) => [...bytes].map((one) => one.toString(16).padStart(2, "0")).join("");

// The codes of answers, in the order of the policy's categories; an error never shows an answer.
export function codesOf(made, answers) {
  const codes = {}, without = [];
  for (const { name, shown, notAsked } of made.questions) {
    const asked = Object.entries(shown).every(([earlier, admitted]) => admitted.includes(codes[earlier]));
    codes[name] = !asked ? notAsked : name in answers ? made.categories[name].indexOf(String(answers[name])) : -1;
    if (codes[name] < 0) without.push(name);
  }
  if (without.length) throw new Error(`no answer, or none of the policy's categories: ${without.join(", ")}`);
  return codes;
}

export function disguised(survey, made, send) {
  let report = null; // drawn once: "save again" sends the same report
  survey.storeDataInLocalStorage = false;
  survey.onComplete.add(async (model, options) => {
    options.showSaveInProgress?.();
    try {
      if (report === null) {
        const reports = await disguise(made.mechanism, codesOf(made, model.data));
        const id = hex(crypto.getRandomValues(new Uint8Array(16)));
        report = { policy: made.policy, id, mode: 0, reports, token: null, ...(made.agreed ? { agreed: made.agreed } : {}) };
        model.data = {}; // the answers are deleted; the page stays completed
      }
      await send(report, made.size);
      options.showSaveSuccess?.();
    } catch (error) {
      model.data = {};
      options.showSaveError?.(error.message);
    }
  });
  return survey;
}

// Bodies of one size, without cookies and referrer, as masquerade's own page sends them.
export const toCollector = (address) => async (report, size) => {
  const reply = await fetch(`${address}/v1/reports`, {
    method: "POST", body: JSON.stringify(report).padEnd(size), headers: { "Content-Type": "text/plain" },
    credentials: "omit", referrerPolicy: "no-referrer", cache: "no-store",
  });
  if (!reply.ok) throw new Error(`the collector refused the report (${reply.status})`);
};
