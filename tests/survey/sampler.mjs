// Meets the vectors in the file that is named: node sampler.mjs FOLDER (masquerade.mjs, tokens.mjs, *.json)
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
import { meet } from "./meet.mjs";

const folder = process.argv[2];
const m = await import(pathToFileURL(`${folder}/masquerade.mjs`));
const t = await import(pathToFileURL(`${folder}/tokens.mjs`));
const read = (name) => JSON.parse(readFileSync(`${folder}/${name}`, "utf8"));
const o = read("voprf.json");
let { met, missed } = await meet(readFileSync(`${folder}/vectors.json`, "utf8"), m);
const expect = (right) => (right ? met++ : missed++);
const bytes = (hex) => Uint8Array.from(Buffer.from(hex, "hex")), hex = (b) => Buffer.from(b).toString("hex");
for (const c of o.vectors.filter((c) => c.inputs.length === 1)) {
  const [input, blind, evaluated] = [c.inputs, c.blinds, c.evaluated].map(([one]) => bytes(one));
  const ends = (proof) => t.finalized(input, blind, evaluated, proof, bytes(o.public));
  expect(hex(await t.blinded(input, blind)) === c.blinded[0]);
  expect(hex(await ends(bytes(c.proof))) === c.outputs[0]);
  for (const at of [0, 40]) {
    const forged = bytes(c.proof);
    forged[at] ^= 1;
    expect(await ends(forged).then(() => false, () => true));
  }
}
// what is drawn of fresh words, and of the keys of as many members of a panel: twice each, in case one differs
const row = [[0, "3"], [1, "1"]], fresh = [0, 0], keyed = [0, 0], people = 20000, policy = "ab".repeat(32);
for (let i = 0; i < people; i++) fresh[await m.draw(row, m.freshWords)]++;
let changed = 0;
const member = async () => {
  const secret = crypto.getRandomValues(new Uint8Array(16)), words = m.memoWords(await m.panelKey(secret, policy));
  const first = await m.draw(row, words, 1, 0);
  keyed[first]++;
  if (first !== (await m.draw(row, words, 1, 0))) changed++;
};
for (let i = 0; i < people; i += 100) await Promise.all(Array.from({ length: 100 }, member));
console.log(JSON.stringify({ met, missed, fresh, keyed, changed }));
