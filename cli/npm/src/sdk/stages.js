// Stages for `Lobster.pipe`: what they do outside this process, the program does, under its policy and in its journal.

import { commandWords, pipelineWord } from "../pipeline_text.js";
import { runStage, runSteps } from "../stage.js";

/** The items that an approval lets through, where the request does not show them. */
export const PASSED = Symbol("passed");

/** How much of an output that is no JSON is quoted. */
const QUOTED = 100;

/**
 * Runs a command and gives what it prints.
 *
 * @param {string} command
 * @param {import("./index.d.ts").ExecOptions} [options]
 * @returns {import("./index.d.ts").Stage}
 */
export function exec(command, options = {}) {
  const cwd = options.cwd ?? process.cwd();
  return {
    type: "exec",
    command,
    async run({ input, ctx }) {
      await drain(input);
      const stdout = await commandOutput(options.shell === true ? command : commandWords(command, "sdk"), { ...ctx, cwd });
      if (options.json === false) return { output: [stdout] };
      const value = parsed(stdout);
      return { output: Array.isArray(value) ? value : [value] };
    },
  };
}

/**
 * Runs a line of shell text.
 *
 * @param {string} command
 * @param {import("./index.d.ts").ExecOptions} [options]
 */
export function shell(command, options = {}) {
  return exec(command, { ...options, shell: true });
}

/**
 * Stops until a person has said yes.
 *
 * @param {import("./index.d.ts").ApproveOptions} [options]
 * @returns {import("./index.d.ts").Stage}
 */
export function approve(options = {}) {
  const prompt = options.prompt ?? "Approve?";
  return {
    type: "approve",
    prompt,
    async run({ input }) {
      const items = await collect(input);
      const shown = options.preview === false ? [] : items;
      return { halt: true, output: [{ type: "approval_request", prompt, items: shown, itemCount: items.length, [PASSED]: items }] };
    },
  };
}

/**
 * Gives the value of a state key.
 *
 * @param {string} key
 * @returns {import("./index.d.ts").Stage}
 */
export function stateGet(key) {
  if (!key) throw new Error("stateGet requires a key");
  return {
    type: "state.get",
    key,
    async run({ input, ctx }) {
      await drain(input);
      return { output: [await readState(key, ctx)] };
    },
  };
}

/**
 * Sets a state key to what comes in: the item if it is one, else the list.
 *
 * @param {string} key
 * @returns {import("./index.d.ts").Stage}
 */
export function stateSet(key) {
  if (!key) throw new Error("stateSet requires a key");
  return {
    type: "state.set",
    key,
    async run({ input, ctx }) {
      const value = valueOf(await collect(input));
      await writeState(key, value, ctx);
      return { output: [value] };
    },
  };
}

/** `state.get` and `state.set`, as {@link stateGet} and {@link stateSet}. */
export const state = { get: stateGet, set: stateSet };

/**
 * Compares what comes in with what came in the last time, and keeps it.
 *
 * @param {string} key
 * @param {import("./index.d.ts").DiffOptions} [options]
 * @returns {import("./index.d.ts").Stage}
 */
export function diffLast(key, options = {}) {
  if (!key) throw new Error("diffLast requires a key");
  return {
    type: "diff.last",
    key,
    async run({ input, ctx }) {
      const { before, after, changed } = await diffAndStoreValue(key, valueOf(await collect(input)), ctx);
      if (options.changesOnly === true && !changed) {
        return { output: [{ kind: "diff.last", key, changed: false, suppressed: true }] };
      }
      return { output: [{ kind: "diff.last", key, changed, before, after }] };
    },
  };
}

/**
 * The value of a state key; null if there is none.
 *
 * @param {string} key
 * @param {import("../core.d.ts").RunContext} [ctx]
 */
export async function readState(key, ctx = {}) {
  const [value] = await outputOf({ pipeline: `state.get -- ${pipelineWord(key)}`, ctx });
  return value;
}

/**
 * Sets a state key.
 *
 * @param {string} key
 * @param {unknown} value
 * @param {import("../core.d.ts").RunContext} [ctx]
 */
export async function writeState(key, value, ctx = {}) {
  await outputOf({ pipeline: `state.set -- ${pipelineWord(key)}`, items: itemsOf(value), ctx });
}

/**
 * Compares a value with the one kept under a key, and keeps it.
 *
 * @param {string} key
 * @param {unknown} value
 * @param {import("../core.d.ts").RunContext} [ctx]
 * @returns {Promise<{before: unknown, after: unknown, changed: boolean}>}
 */
export async function diffAndStoreValue(key, value, ctx = {}) {
  const [found] = await outputOf({ pipeline: `diff.last --key=${pipelineWord(key)}`, items: itemsOf(value), ctx });
  return /** @type {{before: unknown, after: unknown, changed: boolean}} */ (found);
}

/**
 * What a command prints, as it prints it.
 *
 * @param {string[] | string} command  words, or a line of shell text
 * @param {import("../core.d.ts").RunContext} ctx
 * @returns {Promise<string>}
 */
export async function commandOutput(command, ctx) {
  const program = typeof command === "string" ? command : command[0];
  if (!program) throw new Error("exec requires a command");
  const envelope = await runSteps({
    name: "exec",
    steps: [
      { id: "command", ...(typeof command === "string" ? { run: command } : { exec: command }) },
      // Text that looks like JSON would be its value: a pipeline hands on the text itself.
      { id: "stdout", pipeline: "head --n 1", stdin: "$command.stdout" },
    ],
    ctx,
  });
  if (envelope.ok) return String(envelope.output[0] ?? "");
  const said = envelope.error.message;
  const [, code, why] = /^workflow command failed \((\d+)\)(?:: ([\s\S]*))?$/.exec(said) ?? [];
  if (code !== undefined) throw new ExitError(`${program} exited with code ${code}: ${why ?? ""}`, Number(code), why ?? "");
  if (said.startsWith("exec command not found: ")) throw new NotFoundError(`Failed to execute ${program}: spawn ${program} ENOENT`);
  throw new Error(said.replace(/^workflow shell not found/, "exec shell not found"));
}

/** A command that said no. */
export class ExitError extends Error {
  /**
   * @param {string} text
   * @param {number} code
   * @param {string} said
   */
  constructor(text, code, said) {
    super(text);
    this.code = code;
    this.said = said;
  }
}

/** A command that is not there. */
export class NotFoundError extends Error {}

/** @param {string} stdout */
function parsed(stdout) {
  try {
    return JSON.parse(stdout.trim() || "[]");
  } catch {
    throw new Error(`exec output is not valid JSON: ${stdout.slice(0, QUOTED)}`);
  }
}

/** @param {{pipeline: string, items?: unknown[], ctx: import("../core.d.ts").RunContext}} request */
async function outputOf(request) {
  const envelope = await runStage(request);
  if (!envelope.ok) throw new Error(envelope.error.message);
  return envelope.output;
}

/** What the program reads as this value: one item is the item, several are the list. */
function itemsOf(/** @type {unknown} */ value) {
  return Array.isArray(value) && value.length !== 1 ? value : [value];
}

/** @param {unknown[]} items */
function valueOf(items) {
  return items.length === 1 ? items[0] : items;
}

/** @param {AsyncIterable<unknown> | Iterable<unknown>} input */
async function collect(input) {
  const items = [];
  for await (const item of input) items.push(item);
  return items;
}

/** @param {AsyncIterable<unknown> | Iterable<unknown>} input */
async function drain(input) {
  for await (const _item of input) {
    // Read and left.
  }
}
