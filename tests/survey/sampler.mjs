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
// what is drawn of fresh words: counts of a binary and of a wide row
const row = [[0, "3"], [1, "1"]], counts = [0, 0];
for (let i = 0; i < 20000; i++) counts[await m.draw(row, m.freshWords)]++;
console.log(JSON.stringify({ met, missed, counts }));
