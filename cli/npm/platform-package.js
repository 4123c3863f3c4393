// Makes the optional package that carries the program for this machine:
//   node platform-package.js target/dist/lobster OUT

import { chmodSync, copyFileSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";

import { PLATFORM_PACKAGE } from "./src/binary.js";

const [binary, out] = process.argv.slice(2);
if (!binary || !out) {
  console.error("usage: node platform-package.js BINARY DIRECTORY");
  process.exit(2);
}
const { version, license } = JSON.parse(readFileSync(new URL("package.json", import.meta.url), "utf8"));
const root = path.join(out, PLATFORM_PACKAGE);
mkdirSync(path.join(root, "bin"), { recursive: true });
copyFileSync(binary, path.join(root, "bin/lobster"));
chmodSync(path.join(root, "bin/lobster"), 0o755);
const manifest = { name: PLATFORM_PACKAGE, version, license, os: [process.platform], cpu: [process.arch], files: ["bin"] };
writeFileSync(path.join(root, "package.json"), `${JSON.stringify(manifest, null, 2)}\n`);
