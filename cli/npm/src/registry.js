// The commands of the program, as a registry of functions: each call of one is a run of its own.

import { spawnSync } from "node:child_process";

import { findBinary } from "./binary.js";
import { runStage } from "./stage.js";
import { stageText } from "./pipeline_text.js";

/** What runs the program's own commands, with their names. @type {WeakMap<object, string>} */
const runs = new WeakMap();

/** @typedef {{name: string, description: string, help: string, sideEffects?: string[], argsSchema?: object}} Described */

/** What each program says of its commands. @type {Map<string, Map<string, Described>>} */
const described = new Map();

/**
 * The program's pipeline commands. `approve` and `ask` give back their request and halt, as in the
 * incumbent: a question that waits in the program's store is made by `runToolRequest` and `Lobster`.
 *
 * @returns {import("./core.d.ts").Registry}
 */
export function createDefaultRegistry() {
  /** @type {Map<string, import("./core.d.ts").Command>} */
  const commands = new Map();
  return {
    get(/** @type {string} */ name) {
      const stage = descriptions().get(name);
      if (!stage) return undefined;
      const command = commands.get(name) ?? commandOf(stage);
      commands.set(name, command);
      return command;
    },
    list: () => commandNames(findBinary()),
  };
}

/**
 * True if a registry has the program's own command under this name.
 *
 * @param {string} name
 * @param {import("./core.d.ts").Command | undefined} command
 */
export function isProgramCommand(name, command) {
  return typeof command?.run === "function" && runs.get(command.run) === name;
}

/** The names of the program's commands. */
export function commandNames(/** @type {string} */ binary) {
  return [...descriptions(binary).keys()].sort();
}

/** The commands that the program has. */
function descriptions(binary = findBinary()) {
  let known = described.get(binary);
  if (!known) {
    const done = spawnSync(binary, ["--describe"], { encoding: "utf8", maxBuffer: 64 * 1024 * 1024 });
    if (done.status !== 0) {
      const why = done.error?.message ?? (done.stderr || done.stdout).trim();
      throw new Error(`${binary} does not say which commands it has: ${why}`);
    }
    /** @type {{stages: Described[]}} */
    const { stages } = JSON.parse(done.stdout);
    known = new Map(stages.map((stage) => [stage.name, stage]));
    described.set(binary, known);
  }
  return known;
}

/**
 * @param {Described} stage
 * @returns {import("./core.d.ts").Command}
 */
function commandOf({ name, description, help, sideEffects = [], argsSchema }) {
  const own = new Map(Object.entries({ approve, ask: input, json })).get(name);
  const run = own ?? ((call) => throughProgram(name, call));
  runs.set(run, name);
  const asks = name === "approve" || name === "ask" ? { resumeSafeBeforeInput: true, resumeSafeAfterInput: true } : {};
  return {
    name,
    meta: { description, argsSchema, sideEffects, ...asks },
    help: () => `${name} — ${description}\n\n${help}`,
    run,
  };
}

/** Commands after which a step is not retried: somebody else has been handed something. */
const DISPATCH = ["openclaw.invoke", "clawd.invoke", "openclaw.agent", "gog.gmail.send"];

/**
 * @param {string} name
 * @param {import("./core.d.ts").CommandCall} call
 */
async function throughProgram(name, { input, args, ctx }) {
  if (DISPATCH.includes(name)) ctx.onNonRetryableSideEffect?.();
  const envelope = await runStage({ pipeline: stageText(name, args), items: await collect(input), ctx });
  if (!envelope.ok) throw new Error(envelope.error.message);
  const request = envelope.requiresApproval ?? envelope.requiresInput;
  return request ? { halt: true, output: [request] } : { output: envelope.output };
}

/** @param {import("./core.d.ts").CommandCall} call */
async function approve({ input, args }) {
  const items = await collect(input);
  const limit = Number(args.limit ?? args["preview-limit"] ?? 5);
  const shown = items.slice(0, Math.max(0, Number.isFinite(limit) ? limit : 5));
  const lines = shown.every((item) => typeof item === "string");
  const preview = lines ? shown.join("\n") : JSON.stringify(shown, null, 2);
  const wantsPreview = Boolean(args["preview-from-stdin"]) && preview !== "";
  const request = { type: "approval_request", prompt: text(args.prompt) ?? "Approve?", items };
  return { halt: true, output: [wantsPreview ? { ...request, preview } : request] };
}

/** @param {import("./core.d.ts").CommandCall} call */
async function input({ input, args, ctx }) {
  const prompt = text(args.prompt) ?? "Input required";
  const responseSchema = schemaOf(args.schema);
  const kept = /** @type {{type?: string, subject?: unknown} | undefined} */ (ctx.requestInput?.getSuspendedState?.());
  const items = kept?.type === "ask" ? [] : await collect(input);
  const lines = items.map((item) => (typeof item === "string" ? item : JSON.stringify(item)));
  const wantsSubject = Boolean(args["subject-from-stdin"]) && items.length > 0;
  const subject = kept?.type === "ask" ? kept.subject : wantsSubject ? { text: lines.join("\n").slice(0, 2000) } : undefined;
  const about = subject === undefined ? {} : { subject };
  if (!ctx.requestInput || args.emit) {
    return { halt: true, output: [{ type: "input_request", prompt, responseSchema, ...about, items }] };
  }
  return { output: [await ctx.requestInput({ prompt, responseSchema, ...about, suspendedState: { type: "ask", ...about } })] };
}

/** @param {import("./core.d.ts").CommandCall} call */
async function json({ input, ctx }) {
  ctx.render?.json(await collect(input));
  return { output: [], rendered: true };
}

/** @param {unknown} given */
function schemaOf(given) {
  if (given === undefined) {
    const properties = { decision: { type: "string", enum: ["approve", "reject", "redraft"] }, feedback: { type: "string" } };
    return { type: "object", properties, required: ["decision"] };
  }
  let schema;
  try {
    schema = JSON.parse(String(given));
  } catch {
    throw new Error("ask --schema must be valid JSON");
  }
  if (schema === null || typeof schema !== "object" || Array.isArray(schema)) {
    throw new Error("ask --schema must decode to a JSON schema object");
  }
  return schema;
}

/** @param {unknown} value */
function text(value) {
  return typeof value === "string" && value.trim() ? value : undefined;
}

/** @param {AsyncIterable<unknown> | Iterable<unknown>} items */
async function collect(items) {
  const all = [];
  for await (const item of items) all.push(item);
  return all;
}
