// The program under test, in the folder of the workflows.

import { execFileSync } from "node:child_process";

const { LOBSTER, CONSOLE_DIR } = process.env;

// What it prints.
export const lobster = (words, env = {}) => {
  try {
    return execFileSync(LOBSTER, words, { cwd: CONSOLE_DIR, encoding: "utf8", stdio: ["ignore", "pipe", "pipe"], env: { ...process.env, ...env } });
  } catch (error) {
    // A workflow that fails is a run, too.
    return error.stdout;
  }
};

// The JSON that it prints.
export const list = (...words) => JSON.parse(lobster([...words, "--json"]));
