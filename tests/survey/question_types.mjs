// Synthetic people answer each type of question through the page's own code:
// node question_types.mjs FOLDER PEOPLE RUNS SEED (masquerade.mjs, survey.json). Prints, for every run, how
// often each combination of reports of each group came. The words that the page draws by are AES-256 in counter
// mode under the seed, read as the page reads words, so that every run can be repeated.
import { createCipheriv, createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [folder, people, runs, seed] = process.argv.slice(2);
const m = await import(pathToFileURL(`${folder}/masquerade.mjs`));
const { mechanism, questions: asked, truths } = JSON.parse(readFileSync(`${folder}/survey.json`, "utf8"));
const questions = Object.fromEntries(asked.map((q) => [q.name, q]));
const BYTES = 1 << 16;
const stream = createCipheriv("aes-256-ctr", createHash("sha256").update(seed).digest(), Buffer.alloc(16));
let buffer = Buffer.alloc(0), at = 0;
function word() {
  if (at === buffer.length) [buffer, at] = [stream.update(Buffer.alloc(BYTES)), 0];
  at += 8;
  return buffer.readBigUInt64LE(at - 8);
}
const words = async () => word();
const pick = (weights) => {
  let left = Number(word() >> 11n) / 2 ** 53;
  for (let i = 0; i < weights.length; i++) if ((left -= weights[i]) < 0) return i;
  return weights.length - 1;
};
// What a person enters, as the code that the page gives it.
const codeOf = (q, entered) => {
  if (q.number?.date === "age") return m.binOf(q.number, m.yearsSince(...entered, 2027, 6));
  if (q.number) return m.binOf(q.number, entered);
  return q.ticked ? q.ticked[entered ? 0 : 1] : entered;
};
for (let run = 0; run < Number(runs); run++) {
  const counts = mechanism.groups[0].map(() => ({}));
  for (let i = 0; i < Number(people); i++) {
    const person = truths[pick(truths.map(([weight]) => weight))][1], answers = {};
    for (const [name, entered] of Object.entries(person)) answers[name] = codeOf(questions[name], entered);
    const codes = Object.fromEntries(asked.map((q) => [q.name, m.isOpen(questions, answers, q.name) ? answers[q.name] : q.notAsked]));
    const reports = await m.disguise(mechanism, codes, words);
    mechanism.groups[0].forEach((group, g) => {
      const key = group.columns.map((column) => reports[column]).join(" ");
      counts[g][key] = (counts[g][key] ?? 0) + 1;
    });
  }
  console.log(JSON.stringify(counts));
}
