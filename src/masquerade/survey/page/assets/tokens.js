// tokens.js: the client of RFC 9497's VOPRF over ristretto255 (RFC 9496) with SHA-512, on BigInt.
// The signer cannot link a token to its request: it saw only a point times a random number.
// BigInt arithmetic is not constant-time; a blind is used once, on the respondent's own device.
const P = (1n << 255n) - 19n, L = (1n << 252n) + 27742317777372353535851937790883648493n;
const mod = (a, m = P) => ((a % m) + m) % m;
function power(a, e, m = P) {
  let r = 1n;
  for (a = mod(a, m); e > 0n; e >>= 1n, a = (a * a) % m) if (e & 1n) r = (r * a) % m;
  return r;
}
const D = mod(-121665n * power(121666n, P - 2n)), I = power(2n, (P - 1n) / 4n);
const odd = (a) => (a & 1n) === 1n, abs = (a) => (odd(a) ? P - a : a);
function root(u, v) {
  const v3 = mod(v * v * v);
  let r = mod(u * v3 * power(u * v3 * v3 * v, (P - 5n) / 8n));
  const check = mod(v * r * r), square = check === mod(u), turned = check === mod(-u);
  if (turned || check === mod(-u * I)) r = mod(r * I);
  return [square || turned, abs(r)];
}
const A = root(1n, mod(-1n - D))[1], B = P - root(mod(-D - 1n), 1n)[1];
const bytes = (a, n = 32) => Uint8Array.from({ length: n }, (_, i) => Number((a >> BigInt(8 * i)) & 255n));
const number = (b) => b.reduceRight((sum, byte) => (sum << 8n) | BigInt(byte), 0n);
const same = (a, b) => a.length === b.length && a.every((byte, i) => byte === b[i]);

function decode(b) {
  const s = number(b), ss = mod(s * s), u1 = mod(1n - ss), u2 = mod(1n + ss), v = mod(-D * u1 * u1 - u2 * u2);
  const [square, r] = root(1n, mod(v * u2 * u2)), x = abs(mod(2n * s * r * u2)), y = mod(u1 * r * r * u2 * v);
  if (b.length !== 32 || s === 0n || s >= P || odd(s) || !square || odd(mod(x * y)) || y === 0n)
    throw new Error("not a point");
  return [x, y, 1n, mod(x * y)];
}
function encode([x, y, z, t]) {
  const u1 = mod((z + y) * (z - y)), u2 = mod(x * y), [, r] = root(1n, mod(u1 * u2 * u2));
  const d1 = mod(r * u1), d2 = mod(r * u2), zi = mod(d1 * d2 * t), turn = odd(mod(t * zi));
  const [a, b, d] = turn ? [mod(y * I), mod(x * I), mod(d1 * A)] : [x, y, d2];
  return bytes(abs(mod(d * (z - (odd(mod(a * zi)) ? P - b : b)))));
}
function add([x1, y1, z1, t1], [x2, y2, z2, t2]) {
  const a = mod((y1 - x1) * (y2 - x2)), b = mod((y1 + x1) * (y2 + x2)), c = mod(2n * D * t1 * t2);
  const d = mod(2n * z1 * z2), e = b - a, f = d - c, g = d + c, h = b + a;
  return [mod(e * f), mod(g * h), mod(f * g), mod(e * h)];
}
function times(point, n) {
  let sum = [0n, 1n, 1n, 0n];
  for (; n > 0n; n >>= 1n, point = add(point, point)) if (n & 1n) sum = add(sum, point);
  return sum;
}
function mapped(b) {
  const t = mod(number(b) & ((1n << 255n) - 1n)), r = mod(I * t * t);
  const v = mod((-1n - r * D) * (r + D)), [square, s1] = root(mod((r + 1n) * (1n - D * D)), v);
  const s = square ? s1 : P - abs(mod(s1 * t)), c = square ? -1n : r;
  const n = mod(c * (r - 1n) * (D - 1n) * (D - 1n) - v), w0 = mod(2n * s * v), w1 = mod(n * B);
  const w2 = mod(1n - s * s), w3 = mod(1n + s * s);
  return [mod(w0 * w3), mod(w2 * w1), mod(w1 * w3), mod(w0 * w2)];
}
const GENERATOR = decode(bytes(0x762d8de04559a6b68ddd82a56a0be3585f5100c561a984a8714ebc6a0aaef2e2n));

const ascii = (text) => new TextEncoder().encode(text);
const joined = (...parts) => Uint8Array.from(parts.flatMap((part) => [...part]));
const framed = (b) => joined([b.length >> 8, b.length & 255], b);
const sha512 = async (...parts) => new Uint8Array(await crypto.subtle.digest("SHA-512", joined(...parts)));
const NAME = ascii("OPRFV1-\x01-ristretto255-SHA512");
async function expanded(message, use) {
  const domain = joined(ascii(use), NAME), end = joined(domain, [domain.length]);
  return sha512(await sha512(new Uint8Array(128), message, [0, 64, 0], end), [1], end);
}
async function hashed(input) {
  const b = await expanded(input, "HashToGroup-");
  return add(mapped(b.subarray(0, 32)), mapped(b.subarray(32)));
}
const scalar = async (message) => mod(number(await expanded(message, "HashToScalar-")), L);

export const randomBlind = () => {
  const found = mod(number(crypto.getRandomValues(new Uint8Array(64))), L);
  return found === 0n ? randomBlind() : bytes(found);
};
export const blinded = async (input, blind) => encode(times(await hashed(input), number(blind)));

// The token of an input, after verifying that the published key signed it.
export async function finalized(input, blind, evaluated, proof, key) {
  if (evaluated.length !== 32 || proof.length !== 64) throw new Error("not of the right length");
  const sent = await blinded(input, blind), [c, s] = [number(proof.subarray(0, 32)), number(proof.subarray(32))];
  const seed = framed(await sha512(framed(key), framed(joined(ascii("Seed-"), NAME))));
  const weight = await scalar(joined(seed, [0, 0], framed(sent), framed(evaluated), ascii("Composite")));
  const publicKey = decode(key), m = times(decode(sent), weight), z = times(decode(evaluated), weight);
  const t2 = add(times(GENERATOR, s), times(publicKey, c)), t3 = add(times(m, s), times(z, c));
  const all = [key, ...[m, z, t2, t3].map(encode)].flatMap((part) => [...framed(part)]);
  if (c !== (await scalar(joined(all, ascii("Challenge"))))) throw new Error("signed by another key");
  const element = encode(times(decode(evaluated), power(number(blind), L - 2n, L)));
  return sha512(framed(input), framed(element), ascii("Finalize"));
}
