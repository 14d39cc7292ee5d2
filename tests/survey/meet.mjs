// Recomputes the vectors that Python made (tests/survey/vectors.py), in Node and in browsers alike.
export async function meet(text, m = globalThis.masquerade) {
  const v = JSON.parse(text);
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
  return { met, missed };
}
