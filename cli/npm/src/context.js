// What of a caller's context reaches the program, and one call of it.

import { stat } from "node:fs/promises";
import path from "node:path";

import { findBinary } from "./binary.js";
import { CallError, callLobster, message } from "./call.js";
import { lendFunctions } from "./host_functions.js";
import { NotJson, jsonText as textOf } from "./json_text.js";

/** Largest envelope that is taken into memory, unless the caller says otherwise. */
const MAX_STDOUT_BYTES = 128 * 1024 * 1024;

/** Longer words go through stdin: the kernel takes 128 KiB a word. */
const MAX_WORD_BYTES = 100 * 1024;

const WORKFLOW_EXTENSIONS = [".lobster", ".yaml", ".yml", ".json"];

/** A request that is wrong by itself: `parse_error`. */
export class RequestError extends Error {}

/**
 * @param {import("./core.d.ts").ToolContext} ctx
 * @param {(context: Context) => Promise<unknown>} work
 * @param {string} [pipeline]  the pipeline that it runs
 * @returns {Promise<import("./core.d.ts").Envelope>}
 */
export async function answer(ctx, work, pipeline) {
  /** @type {import("./host_functions.js").Lent | undefined} */
  let lent;
  try {
    const made = context(ctx);
    lent = await lendFunctions(ctx, made, pipeline);
    const envelope = await work({ ...made, env: { ...made.env, ...lent?.env } });
    if (!isEnvelope(envelope)) throw new CallError("lobster answered with something that is no envelope");
    return envelope;
  } catch (error) {
    const type = error instanceof RequestError ? "parse_error" : "runtime_error";
    return { protocolVersion: 1, ok: false, error: { type, message: message(error) } };
  } finally {
    lent?.close();
  }
}

/**
 * @typedef {object} Context
 * @property {string} binary
 * @property {string} cwd
 * @property {NodeJS.ProcessEnv} env
 * @property {NodeJS.WritableStream | undefined} stderr
 * @property {AbortSignal | undefined} signal
 * @property {AbortSignal | undefined} forceSignal
 * @property {number} maxStdoutBytes
 * @property {number | undefined} timeoutMs
 */

/**
 * What of a caller's context reaches the program as words and variables.
 *
 * @param {import("./core.d.ts").ToolContext} ctx
 * @returns {Context}
 */
function context(ctx) {
  if (ctx.mode !== undefined && ctx.mode !== "tool") throw new RequestError(`ctx.mode must be "tool", not ${JSON.stringify(ctx.mode)}`);
  const env = { ...process.env, ...ctx.env };
  // What runs on behalf of this process does not outlive it, as if it ran in it.
  env.LOBSTER_DIE_WITH_PARENT = String(process.pid);
  const limits = ctx.limits ?? {};
  return {
    binary: findBinary(env),
    cwd: path.resolve(ctx.cwd ?? process.cwd()),
    env,
    stderr: ctx.stderr,
    signal: ctx.signal,
    forceSignal: ctx.forceTerminationSignal,
    maxStdoutBytes: positive(limits.maxStdoutBytes, "limits.maxStdoutBytes") ?? MAX_STDOUT_BYTES,
    timeoutMs: positive(limits.timeoutMs, "limits.timeoutMs"),
  };
}

/**
 * @param {Context} context
 * @param {string[]} argv
 * @param {string} [input]
 */
export async function call(context, argv, input) {
  const directory = await stat(context.cwd).catch(() => undefined);
  if (!directory?.isDirectory()) throw new CallError(`the working directory does not exist: ${context.cwd}`);
  const { signal, stop } = timed(context.signal, context.timeoutMs);
  try {
    return await callLobster({ ...context, argv, input, signal });
  } finally {
    stop();
  }
}

/**
 * A call with an option whose value is a word, or stdin where it is too long for one.
 *
 * @param {Context} context
 * @param {string[]} argv
 * @param {string} option
 * @param {string} value
 */
export function callWith(context, argv, option, value) {
  if (value.includes("\0")) throw new RequestError(`${option.slice(2)} holds a NUL character`);
  const fits = Buffer.byteLength(value) <= MAX_WORD_BYTES && value !== "-";
  return fits ? call(context, [...argv, `${option}=${value}`]) : call(context, [...argv, `${option}=-`], value);
}

/**
 * @param {AbortSignal | undefined} signal
 * @param {number | undefined} timeoutMs
 */
function timed(signal, timeoutMs) {
  if (timeoutMs === undefined) return { signal, stop: () => {} };
  const controller = new AbortController();
  const timer = setTimeout(() => controller.abort(new Error(`lobster timed out after ${timeoutMs} ms`)), timeoutMs);
  const onAbort = () => controller.abort(signal?.reason);
  if (signal?.aborted) onAbort();
  signal?.addEventListener("abort", onAbort, { once: true });
  const stop = () => {
    clearTimeout(timer);
    signal?.removeEventListener("abort", onAbort);
  };
  return { signal: controller.signal, stop };
}

/**
 * @param {string} candidate
 * @param {string} cwd
 */
export async function workflowFile(candidate, cwd) {
  const resolved = path.resolve(cwd, candidate);
  const found = await stat(resolved).catch((error) => {
    throw new RequestError(message(error));
  });
  if (!found.isFile()) throw new RequestError("Workflow path is not a file");
  if (!WORKFLOW_EXTENSIONS.includes(path.extname(resolved).toLowerCase())) {
    throw new RequestError("Workflow file must end in .lobster, .yaml, .yml, or .json");
  }
  return resolved;
}

/**
 * @param {unknown} value
 * @param {string} name
 */
export function jsonText(value, name) {
  try {
    return textOf(value, name);
  } catch (error) {
    throw error instanceof NotJson ? new RequestError(error.message) : error;
  }
}

/**
 * @param {unknown} value
 * @param {string} name
 */
export function text(value, name) {
  if (typeof value !== "string") throw new RequestError(`${name} must be a string`);
  return value;
}

/**
 * @param {unknown} value
 * @param {string} name
 */
function positive(value, name) {
  if (value === undefined) return undefined;
  if (typeof value !== "number" || !Number.isFinite(value) || value <= 0) {
    throw new RequestError(`ctx.${name} must be a number above 0`);
  }
  return value;
}

/**
 * @param {unknown} value
 * @returns {value is import("./core.d.ts").Envelope}
 */
function isEnvelope(value) {
  return typeof value === "object" && value !== null && typeof (/** @type {{ok?: unknown}} */ (value).ok) === "boolean";
}
