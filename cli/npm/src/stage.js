// One pipeline over given items: a run of the program.

import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";

import { findBinary } from "./binary.js";
import { message } from "./call.js";
import { runToolRequest } from "./requests.js";

/**
 * Runs a pipeline over items.
 *
 * @param {object} request
 * @param {string} request.pipeline
 * @param {unknown[]} [request.items]  what its first command reads
 * @param {import("./core.d.ts").RunContext} request.ctx
 * @returns {Promise<import("./core.d.ts").Envelope>}
 */
export function runStage({ pipeline, items = [], ctx }) {
  if (items.length === 0) return runToolRequest({ pipeline, ctx: toolContext(ctx) });
  return runSteps({ name: "stage", steps: [{ id: "stage", pipeline, stdin: items }], ctx });
}

/**
 * Runs steps that are made up for this call. Items stand in them as they are:
 * what a step's `stdin` says as a list is never searched for references.
 *
 * @param {object} request
 * @param {string} request.name
 * @param {object[]} request.steps
 * @param {import("./core.d.ts").RunContext} request.ctx
 * @returns {Promise<import("./core.d.ts").Envelope>}
 */
export async function runSteps({ name, steps, ctx }) {
  let file;
  try {
    file = JSON.stringify({ name, steps });
  } catch (error) {
    throw new Error(`items cannot be written as JSON: ${message(error)}`);
  }
  const dir = await mkdtemp(path.join(tmpdir(), "lobster-sdk-"));
  try {
    const filePath = path.join(dir, `${name}.json`);
    await writeFile(filePath, file, { mode: 0o600 });
    return await runToolRequest({ filePath, ctx: toolContext(ctx) });
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
}

/**
 * What of a stage's context reaches the program: its environment is the stage's alone, whatever
 * this process has.
 *
 * @param {import("./core.d.ts").RunContext} [ctx]
 * @returns {import("./core.d.ts").ToolContext}
 */
export function toolContext(ctx = {}) {
  const { cwd, signal, forceTerminationSignal, llmAdapters, stateDir } = ctx;
  const own = ctx.env ?? process.env;
  /** @type {Record<string, string | undefined>} */
  const env = {};
  for (const key of Object.keys(process.env)) env[key] = undefined;
  Object.assign(env, own);
  if (stateDir !== undefined) env.LOBSTER_STATE_DIR = path.resolve(stateDir);
  env.LOBSTER_BIN = own.LOBSTER_BIN?.trim() ? own.LOBSTER_BIN : findBinary();
  return { cwd, env, signal, forceTerminationSignal, llmAdapters };
}
