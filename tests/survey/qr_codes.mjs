// Makes the page's QR codes and has them read by jsQR: node qr_codes.mjs PACKAGES QR.mjs < texts.json
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const read = createRequire(`${process.argv[2]}/`)("jsqr"), { qr } = await import(pathToFileURL(process.argv[3]));
const scale = 4, quiet = 4;
const told = JSON.parse(readFileSync(0, "utf8")).map((text) => {
  const dark = qr(text), n = (dark.length + 2 * quiet) * scale, pixels = new Uint8ClampedArray(4 * n * n).fill(255);
  for (let y = 0; y < n; y++) for (let x = 0; x < n; x++)
    if (dark[Math.floor(y / scale) - quiet]?.[Math.floor(x / scale) - quiet]) pixels.fill(0, 4 * (y * n + x), 4 * (y * n + x) + 3);
  return { modules: dark.map((row) => row.map(Number)), read: read(pixels, n, n)?.data };
});
console.log(JSON.stringify(told));
