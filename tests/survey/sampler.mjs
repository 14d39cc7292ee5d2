// Meets the vectors in the file that is named: node sampler.mjs FOLDER (masquerade.mjs, tokens.mjs, *.json)
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const folder = process.argv[2];
const m = await import(pathToFileURL(`${folder}/masquerade.mjs`));
const t = await import(pathToFileURL(`${folder}/tokens.mjs`));
const read = (name) => JSON.parse(readFileSync(`${folder}/${name}`, "utf8"));
const v = read("vectors.json"), o = read("voprf.json");
let met = 0, missed = 0;
const expect = (right) => (right ? met++ : missed++);
for (const { channel, rows } of v.draws)
  for (const { code, words, reports } of rows) {
    const table = m.intervals(m.rowOf(channel, code));
    words.forEach((word, i) => expect(m.reportOfWord(table, BigInt(`0x${word}`)) === reports[i]));
  }
const key = await m.panelKey(Uint8Array.from(v.memo.secret), v.memo.policy);
for (const w of v.memo.words)
  expect((await m.memoWords(key, Uint8Array.from(w.tag))(w.place, w.code, w.attempt)) === BigInt(`0x${w.word}`));
for (const { policy, mechanism, cases } of v.disguises)
  for (const { secret, codes, reports } of cases) {
    const words = m.memoWords(await m.panelKey(Uint8Array.from(secret), policy));
    expect(JSON.stringify(await m.disguise(mechanism, codes, words)) === JSON.stringify(reports));
  }
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
