// Finds the lobster program that this package stands for.

import { accessSync, constants, closeSync, openSync, readSync, realpathSync, statSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { fileURLToPath } from "node:url";

const PACKAGE_ROOT = realpathSync(fileURLToPath(new URL("..", import.meta.url)));

/** The optional package that carries the program for this machine. */
export const PLATFORM_PACKAGE = `lobster-runtime-${process.platform}-${process.arch}`;

/**
 * The program to run: `LOBSTER_BIN`, else `lobster` on `PATH`, else the optional
 * platform package.
 *
 * `PATH` often leads to shims of npm packages: to this package's own, which would
 * call itself for ever, or to the incumbent's, which is another runtime. So a
 * script for node does not count.
 *
 * @param {NodeJS.ProcessEnv} [env]
 * @returns {string} an absolute path
 * @throws {Error} when there is none
 */
export function findBinary(env = process.env) {
  const chosen = env.LOBSTER_BIN?.trim();
  if (chosen) {
    if (isExecutable(chosen)) return path.resolve(chosen);
    throw new Error(`LOBSTER_BIN is not an executable file: ${chosen}`);
  }
  const name = process.platform === "win32" ? "lobster.exe" : "lobster";
  for (const directory of (env.PATH ?? "").split(path.delimiter)) {
    const candidate = path.resolve(directory || ".", name);
    if (isExecutable(candidate) && !isNodeScript(candidate)) return candidate;
  }
  try {
    return createRequire(import.meta.url).resolve(`${PLATFORM_PACKAGE}/bin/${name}`);
  } catch {
    throw new Error(
      `the lobster program was not found: set LOBSTER_BIN, put lobster on PATH, or install ${PLATFORM_PACKAGE}`,
    );
  }
}

/** @param {string} file */
function isExecutable(file) {
  try {
    accessSync(file, constants.X_OK);
    return statSync(file).isFile();
  } catch {
    return false;
  }
}

/** @param {string} file */
function isNodeScript(file) {
  const real = realpathSync(file);
  if (real.startsWith(PACKAGE_ROOT + path.sep)) return true;
  const start = Buffer.alloc(128);
  const fd = openSync(real, "r");
  try {
    const length = readSync(fd, start, 0, start.length, 0);
    return /^#!.*\bnode\b/.test(start.toString("latin1", 0, length));
  } finally {
    closeSync(fd);
  }
}
