// qr.js: the QR code of a recovery code. Nine words of five letters are 53 bytes, the capacity of version 3,
// level L (ISO/IEC 18004: 29 by 29, 55 bytes of data, 15 of correction), so version, level and mask are fixed.
export function qr(words) {
  const n = 29, dark = Array.from({ length: n }, () => []), bytes = new TextEncoder().encode(words);
  const digits = [...bytes].map((one) => one.toString(16).padStart(2, "0")).join("");
  if (bytes.length !== 53) throw new RangeError("53 bytes fit");
  // mode 4 (bytes), their number 0x35, the bytes, and 0 for the end
  const data = `435${digits}0`.match(/../g).map((one) => parseInt(one, 16));
  const times = (a, b) => {
    let found = 0;
    for (; b; b >>= 1, a = (a << 1) ^ ((a >> 7) * 0x11d)) if (b & 1) found ^= a;
    return found;
  };
  let divisor = [1];
  for (let i = 0, root = 1; i < 15; i++, root = times(root, 2)) divisor = [...divisor, 0].map((one, j) => one ^ times(divisor[j - 1] ?? 0, root));
  const rest = [...data, ...Array(15).fill(0)];
  for (const i of data.keys()) {
    const lead = rest[i];
    divisor.forEach((one, j) => (rest[i + j] ^= times(one, lead)));
  }
  const all = [...data, ...rest.slice(55)];
  const rings = (y, x, size, light) => {
    for (let r = -size; r <= size; r++) for (let c = -size; c <= size; c++)
      if (dark[y + r] && x + c >= 0 && x + c < n) dark[y + r][x + c] = !light.includes(Math.max(Math.abs(r), Math.abs(c)));
  };
  for (let i = 8; i < 21; i++) dark[6][i] = dark[i][6] = i % 2 === 0;
  rings(3, 3, 4, [2, 4]);
  rings(3, 25, 4, [2, 4]);
  rings(25, 3, 4, [2, 4]);
  rings(22, 22, 2, [1]);
  for (let i = 0; i < 15; i++) {
    const on = ((0x77c4 >> i) & 1) === 1, near = i < 6 ? i : i < 8 ? i + 1 : i > 8 ? 14 - i : 7;
    if (i < 8) dark[near][8] = dark[8][n - 1 - i] = on;
    else dark[8][near] = dark[n - 15 + i][8] = on;
  }
  dark[21][8] = true;
  let at = 0;
  for (let right = n - 1, up = true; right > 0; right -= right === 8 ? 3 : 2, up = !up)
    for (let i = 0; i < n; i++) for (const x of [right, right - 1]) {
      const y = up ? n - 1 - i : i;
      if (dark[y][x] === undefined) dark[y][x] = (((all[at >> 3] >> (7 - (at++ & 7))) & 1) === 1) !== ((x + y) % 2 === 0);
    }
  return dark;
}
