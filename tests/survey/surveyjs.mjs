// SurveyJS itself with the package: node surveyjs.mjs PACKAGES FOLDER ADDRESS TIMES
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [, , packages, folder, address, times] = process.argv;
const { Model } = createRequire(`${packages}/`)("survey-core");
const { disguised, toCollector } = await import(pathToFileURL(`${folder}/masquerade-surveyjs.js`));
const made = JSON.parse(readFileSync(`${folder}/mechanism.json`, "utf8"));
const elements = Object.entries(made.categories).map(([name, choices]) => ({ type: "radiogroup", name, choices, isRequired: true }));
const answers = { age: "30 to 49", pills: "yes", told: "no", nights: "many" };
const told = { bodies: [], states: [], left: [], errors: [] };
const complete = (given, send) => new Promise((ok) => {
  const survey = new Model({ elements });
  const noted = { showSaveInProgress: () => told.states.push("saving"), showSaveSuccess: ok, showSaveError: (why) => { told.errors.push(why); ok(); } };
  survey.onComplete.add((_, options) => Object.assign(options, noted));
  disguised(survey, made, send);
  survey.data = given;
  survey.doComplete();
  told.left.push(survey);
});
const send = toCollector(address);
for (let i = 0; i < Number(times); i++)
  await complete(answers, async (report, size) => {
    told.bodies.push(JSON.stringify(report).padEnd(size));
    await send(report, size);
  });
await complete({ ...answers, pills: "marked-unknown" }, send); // none of the categories: refused, and not shown
told.left = told.left.map((survey) => Object.keys(survey.data).length);
console.log(JSON.stringify(told));
