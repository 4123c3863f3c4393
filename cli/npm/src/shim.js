// Hands a command line over to the program, under the name it was called by.

import { spawn } from "node:child_process";
import { constants } from "node:os";

import { findBinary } from "./binary.js";

/** @param {string} name */
export function shim(name) {
  let binary;
  try {
    binary = findBinary();
  } catch (error) {
    console.error(`Error: ${error instanceof Error ? error.message : error}`);
    process.exit(1);
  }
  const child = spawn(binary, process.argv.slice(2), { argv0: name, stdio: "inherit" });
  /** @type {NodeJS.Signals[]} */
  const signals = ["SIGINT", "SIGTERM", "SIGHUP"];
  for (const signal of signals) process.on(signal, () => child.kill(signal));
  child.once("error", (error) => {
    console.error(`Error: cannot start ${binary}: ${error.message}`);
    process.exit(1);
  });
  child.once("exit", (code, signal) => {
    process.exit(code ?? 128 + (signal ? constants.signals[signal] : 0));
  });
}
