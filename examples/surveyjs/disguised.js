// SurveyJS with masquerade: answers are disguised on completion, in the browser, and only reports are sent.
//
//   import { Model } from "survey-core";
//   import { disguised, toCollector } from "./disguised.js";
//   const made = await (await fetch("mechanism.json")).json();
//   const survey = disguised(new Model(questions), made, toCollector("https://survey.example.org"));
//
// Questions are named as the policy's variables, and the values of their choices as its categories. Every variable is
// asked of everybody: whom SurveyJS does not show a question has no answer that could be disguised.
// Leave off what would store or send answers before: `storeDataInLocalStorage`, `surveyPostId`, `onPartialSend`.
import { disguise } from "./masquerade.js";

const hex = (bytes) => [...bytes].map((one) => one.toString(16).padStart(2, "0")).join("");

// The codes of answers, in the order of the policy's categories; an error never shows an answer.
export function codesOf(made, answers) {
  const codes = Object.entries(made.categories).map(([name, own]) => [name, name in answers ? own.indexOf(String(answers[name])) : -1]);
  const without = codes.filter(([, code]) => code < 0).map(([name]) => name);
  if (without.length) throw new Error(`no answer, or none of the policy's categories: ${without.join(", ")}`);
  return Object.fromEntries(codes);
}

export function disguised(survey, made, send) {
  survey.storeDataInLocalStorage = false;
  survey.onComplete.add(async (model, options) => {
    options.showSaveInProgress?.();
    try {
      const reports = await disguise(made.mechanism, codesOf(made, model.data)); // drawn once
      model.clear(true, false);
      await send({ policy: made.policy, id: hex(crypto.getRandomValues(new Uint8Array(16))), mode: 0, reports, token: null }, made.size);
      options.showSaveSuccess?.();
    } catch (error) {
      model.clear(true, false);
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
