// masquerade.js: the exact sampler of masquerade (Apache-2.0), for browsers and for Node 20.
// A row of a channel is [[report, weight], ...]; weights are integers written as decimal text.
// Outcome j owns w_j*q consecutive words of 64 bits, with q = floor(2^64 / D) and D the sum of the weights.
// Words from D*q on are drawn again, so that j has probability exactly w_j / D. The same words give the same
// reports as in Python: tests/survey/vectors.py. No Math.random, no floating point.
const ALL = 1n << 64n, DEALING = 1 << 15;

export function intervals(row) {
  const live = row.filter(([, weight]) => BigInt(weight) > 0n);
  const total = live.reduce((sum, [, weight]) => sum + BigInt(weight), 0n);
  if (total < 1n || total > 1n << 62n) throw new RangeError("the weights of a row add up to 1 to 2^62");
  const q = ALL / total;
  let end = 0n;
  return live.map(([report, weight]) => [report, end += BigInt(weight) * q]);
}

// The report that a word gives, -1 if the word is rejected.
export function reportOfWord(table, word) {
  for (const [report, end] of table) if (word < end) return report;
  return -1;
}

// A channel is its rows, or [size, same, other]: weights of the truth itself and of every other report.
export function rowOf(channel, code) {
  if (Array.isArray(channel[0])) return channel[code];
  const [size, same, other] = channel;
  return Array.from({ length: size }, (_, report) => [report, report === code ? same : other]);
}

// Two equal words in sequence indicate a broken generator: they have probability 2^-64.
let before = -1n;
export const freshWords = async () => {
  const word = new DataView(crypto.getRandomValues(new Uint8Array(8)).buffer).getBigUint64(0, true);
  if (word === before) throw new Error("the generator of random numbers repeats itself");
  return (before = word);
};

// Words of a panel: the first 8 bytes of AES-256 of tag (10 bytes) | place (2) | code (3) | attempt (1).
// CBC of one block with a zero initialization vector is the block cipher itself.
export const memoWords = (key, tag = new Uint8Array(10)) => async (place, code, attempt) => {
  const block = new Uint8Array(16);
  block.set(tag.subarray(0, 10));
  block.set([place >> 8, place & 255, code & 255, (code >> 8) & 255, (code >> 16) & 255, attempt], 10);
  const sealed = await crypto.subtle.encrypt({ name: "AES-CBC", iv: new Uint8Array(16) }, key, block);
  return new DataView(sealed).getBigUint64(0, true);
};

// The key of a panel member: HKDF of the recovery code, different for every policy.
export async function panelKey(secret, policy) {
  const text = new TextEncoder(), parts = ["masquerade 1", "derive", "survey panel", policy];
  const info = parts.flatMap((part) => [0, 0, 0, 0, 0, 0, 0, part.length, ...text.encode(part)]);
  const how = { name: "HKDF", hash: "SHA-256", salt: new Uint8Array(32), info: new Uint8Array(info) };
  const base = await crypto.subtle.importKey("raw", secret, "HKDF", false, ["deriveKey"]);
  return crypto.subtle.deriveKey(how, base, { name: "AES-CBC", length: 256 }, false, ["encrypt"]);
}

export async function draw(row, words, place = 0, code = 0) {
  const table = intervals(row);
  for (let attempt = 0; attempt < 256; attempt++) {
    const report = reportOfWord(table, await words(place, code, attempt));
    if (report >= 0) return report;
  }
  throw new Error("no word was accepted");
}

// Blocks in order: as listed, or all combinations of k questions and then, if differences are dealt, of k + 1.
export function blocksOf(group) {
  if (group.blocks) return { members: group.blocks, cells: group.blocks.length };
  const found = [], pick = (size, from, chosen) => {
    if (chosen.length === size) found.push(chosen);
    else for (let i = from; i < group.sizes.length; i++) pick(size, i + 1, [...chosen, i]);
  };
  pick(group.k, 0, []);
  const cells = found.length;
  if (group.deal[1] !== "0") pick(group.k + 1, 0, []);
  return { members: found, cells };
}

export async function deal(group, words, place) {
  const { members, cells } = blocksOf(group);
  return draw(members.map((_, i) => [i, group.weights?.[i] ?? group.deal[i < cells ? 0 : 1]]), words, place | DEALING, 0);
}

// The codes in a joint code, the last varying fastest.
export const digits = (code, sizes) => sizes.reduceRight(([rest, ...found], size) =>
  [Math.floor(rest / size), rest % size, ...found], [code]).slice(1);

// The reports for codes by variable, in the order of the columns; `blocks` are those dealt at the start.
export async function disguise(mechanism, codes, words = freshWords, blocks = {}) {
  const stratum = mechanism.by === null ? 0 : codes[mechanism.by];
  const groups = mechanism.groups[stratum], reports = [];
  for (const [i, group] of groups.entries()) {
    const place = stratum * groups.length + i, own = group.names.map((name) => codes[name]);
    const joint = (at) => at.reduce((sum, j) => sum * group.sizes[j] + own[j], 0);
    if (group.channels) {
      const block = blocks[place] ?? (await deal(group, words, place));
      const { members, cells } = blocksOf(group), at = members[block];
      const code = block < cells ? joint(at) : at.slice(1).reduce((sum, j) => sum * 2 + (own[j] ^ own[at[0]]), 0);
      const size = block < cells ? at.reduce((n, j) => n * group.sizes[j], 1) : 2 ** group.k;
      reports[group.columns[0]] = block;
      reports[group.columns[1]] = await draw(rowOf(group.channels[size], code), words, place, code);
    } else if (!group.channel) {
      group.columns.forEach((column, j) => (reports[column] = own[j]));
    } else {
      const code = joint([...own.keys()]);
      const report = await draw(rowOf(group.channel, code), words, place, code);
      digits(report, group.reportSizes).forEach((one, j) => (reports[group.columns[j]] = one));
    }
  }
  return reports;
}

// The category of a number: codes[i] for values from cuts[i - 1] to below cuts[i].
export const binOf = ({ cuts, codes }, value) => codes[cuts.filter((cut) => cut <= value).length];
// Completed years from a month until another.
export const yearsSince = (year, month, thenYear, thenMonth) => thenYear - year - (thenMonth < month ? 1 : 0);
// Whether a question is asked, by the answers to the questions that it depends on.
export const isOpen = (questions, answers, name) => Object.entries(questions[name].shown)
  .every(([one, codes]) => codes.includes(answers[one]) && isOpen(questions, answers, one));
