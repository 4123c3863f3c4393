// The evaluator behind `js:` steps: a component that runs the author's JavaScript
// in QuickJS, with no WASI at all. What the code can reach is what stands here:
// its bindings, a clock that stands still, a seeded Math.random, and the globals
// of globals.js: a console that goes to the step's log, URL, TextDecoder and so on.

import { describeValue, runMicrotasks, seedCrypto } from "./globals.js";

const ARGS = {
  $schema: "https://json-schema.org/draft/2020-12/schema",
  type: "object",
  required: ["code"],
  additionalProperties: false,
  properties: {
    code: {
      type: "string",
      description: "An expression, or a function body that returns. It sees input, args and steps.",
    },
    input: { description: "What `input` is. Without it: the step's input; items as an array, bytes as text." },
    args: { description: "What `args` is.", default: {} },
    steps: { description: "What `steps` is: earlier steps by id.", type: "object", default: {} },
    as: {
      enum: ["value", "items"],
      default: "items",
      description: "`items`: an array is given item by item, undefined gives nothing. `value`: always one item; undefined is null.",
    },
    now: {
      type: "number",
      description: "Milliseconds since 1970 at which Date stands still. Without it, asking for the time is an error.",
    },
    seed: { type: "integer", default: 0, description: "Where Math.random starts." },
  },
};

export function describe() {
  return {
    name: "js-eval",
    version: "0.1.0",
    summary: "Evaluates a JavaScript expression or function body over its input",
    argsSchema: JSON.stringify(ARGS),
    inputSchema: undefined,
    outputSchema: "true",
    wants: [],
    // This engine takes u64 as a number and traps on a BigInt.
    limits: { fuel: 2_000_000_000, memory: 67_108_864, output: undefined, timeoutMs: undefined },
    examples: [
      {
        summary: "keep what scores high",
        args: JSON.stringify({ code: "input.filter(m => m.score > 0.8)" }),
        input: '{"id":1,"score":0.9}\n{"id":2,"score":0.1}\n',
        output: '{"id":1,"score":0.9}\n',
      },
    ],
  };
}

export function run(text, input, output) {
  const given = JSON.parse(text);
  const bound = "input" in given ? given.input : readInput(input);
  const evaluate = compile(given.code);
  still.now = given.now;
  still.chance = (given.seed ?? 0) | 0;
  seedCrypto(() => ("input" in given ? text : text + describeValue(bound)));
  let result;
  try {
    result = evaluate(bound, given.args ?? {}, given.steps ?? {});
    runMicrotasks();
  } catch (error) {
    throw failure("js-error", error, given.code);
  }
  const asItems = given.as !== "value";
  const items = asItems ? (Array.isArray(result) ? result : result === undefined ? [] : [result]) : [result ?? null];
  output.emit(items.map((item, at) => toJson(item, asItems && Array.isArray(result) ? `[${at}]` : "")));
}

function readInput(input) {
  const kind = input.payload();
  if (kind === "empty") return null;
  const all = [];
  for (;;) {
    const items = input.next(256);
    if (items.length === 0) break;
    for (const item of items) all.push(JSON.parse(item));
  }
  return kind === "bytes" ? (all[0] ?? "") : all;
}

const evaluateGlobally = eval;

// What stands before the author's text, on a line of its own. The engine keeps
// the text of a function and looks ahead from each `(` that may begin an arrow
// function: neither function nor text stands in parentheses that do.
const AS_EXPRESSION = ['"use strict";0,function(input,args,steps){return null??(\n', "\n)}"];
const AS_BODY = ['"use strict";0,function(input,args,steps){\n', "\n}"];
const FIRST_LINE = 2;

/**
 * The author's text as a function. It is read as an expression first; a text
 * that is none (it has statements) is read as a function body. If it is neither,
 * the reading that got further is what the author meant.
 */
function compile(code) {
  if (typeof code !== "string") throw stepError("bad-args", "`code` is not text");
  const errors = [];
  for (const [before, after] of [AS_EXPRESSION, AS_BODY]) {
    try {
      return evaluateGlobally(before + code + after);
    } catch (error) {
      errors.push(error);
    }
  }
  const [first, second] = errors.map((error) => failure("js-syntax", error, code));
  const isFurther = second.at.line > first.at.line
    || (second.at.line === first.at.line && second.at.column > first.at.column);
  throw isFurther ? second : first;
}

/** The error a step ends with: message, line and column of the author's text, and that line. */
function failure(code, error, source) {
  const lines = source.split("\n");
  const at = position(error);
  const isObject = error !== null && typeof error === "object";
  let message = isObject && "message" in error ? `${error.name ?? "Error"}: ${error.message}` : `thrown: ${describeValue(error)}`;
  if (code === "js-syntax" && at && at.line > lines.length) {
    message = "SyntaxError: the code ends too early";
    at.line = lines.length;
    at.column = lines[lines.length - 1].length + 1;
  }
  if (!at) return stepError(code, message);
  const shown = lines[at.line - 1] ?? "";
  return Object.assign(stepError(code, `${message} (line ${at.line}, column ${at.column}: ${shown.trim()})`), { at });
}

/** The topmost frame of a stack that lies in the author's text. */
function position(error) {
  const stack = typeof error?.stack === "string" ? error.stack : "";
  for (const frame of stack.matchAll(/<input>:(\d+):(\d+)/g)) {
    const line = Number(frame[1]) - FIRST_LINE + 1;
    if (line >= 1) return { line, column: Number(frame[2]) };
  }
  return undefined;
}

function stepError(code, message) {
  return { code, message, retryable: false };
}

function toJson(value, path) {
  if (typeof value?.then === "function") {
    throw stepError("not-json", `the result${path} is a promise: js steps are synchronous, drop async and await`);
  }
  let text;
  try {
    text = JSON.stringify(value);
  } catch (error) {
    throw stepError("not-json", `the result${path} cannot be JSON: ${error?.message ?? error}`);
  }
  if (text === undefined) throw stepError("not-json", `the result${path} is ${describeValue(value)}, which JSON cannot hold`);
  return text;
}

// From here on it is done once, when the evaluator is built: what the snapshot
// holds, no run makes again.

/** What time and chance are functions of. */
const still = { now: undefined, chance: 0 };

const RealDate = Date;

function now() {
  if (still.now === undefined) throw new Error("there is no clock in a js step: take the time from args, or pass `now`");
  return still.now;
}

function FixedDate(...parts) {
  if (!new.target) return new RealDate(now()).toString();
  return Reflect.construct(RealDate, parts.length === 0 ? [now()] : parts, new.target);
}
FixedDate.prototype = RealDate.prototype;
FixedDate.prototype.constructor = FixedDate;
FixedDate.now = now;
FixedDate.parse = RealDate.parse;
FixedDate.UTC = RealDate.UTC;
globalThis.Date = FixedDate;

// Mulberry32: small, and good enough for what a workflow may want chance for.
Math.random = () => {
  still.chance = (still.chance + 0x6d2b79f5) | 0;
  let bits = Math.imul(still.chance ^ (still.chance >>> 15), 1 | still.chance);
  bits = (bits + Math.imul(bits ^ (bits >>> 7), 61 | bits)) ^ bits;
  return ((bits ^ (bits >>> 14)) >>> 0) / 4294967296;
};

for (const name of ["performance", "wit", "__cqjs"]) delete globalThis[name];
