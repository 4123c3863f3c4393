// The contract, wrapped for JavaScript. It is part of your project: change it if
// you need to.
//
// There is no Node, no fetch, no timers and no files in here, and nothing runs after a promise; what a step gets is
// its arguments and its input. The clock stands nearly still (still.js).
// `Math.random` and `crypto` depend on the arguments and the first part of the input:
// the same call gives the same values, which are no secrets.

import "./still.js";
import { nextFraction, runMicrotasks, seedCrypto } from "./globals.js";
import * as host from "lobster:step/host@0.1.0";

const ITEMS_AT_ONCE = 64;
const BYTES_AT_ONCE = 65536;

Math.random = nextFraction;

/** How a step says that it failed. `code` is for programs: words joined by dashes. */
export class StepError extends Error {
  constructor(code, message, { retryable = false } = {}) {
    super(message);
    this.code = code;
    this.retryable = retryable;
  }
}

/** Makes the two functions of the contract from one description. */
export function step(given) {
  const json = (schema) => (schema === undefined ? undefined : JSON.stringify(schema));
  return {
    describe() {
      const limits = given.limits ?? {};
      return {
        name: given.name,
        version: given.version,
        summary: given.summary,
        argsSchema: json(given.args ?? { type: "object" }),
        inputSchema: json(given.input),
        outputSchema: json(given.output),
        // { read: "/data" } or { write }, { env }, { net }, { clock: true }, { random: true }, with reason and optional.
        wants: (given.wants ?? []).map(({ reason, optional = false, ...capability }) => {
          const [tag, value] = Object.entries(capability)[0];
          return { capability: typeof value === "string" ? { tag, val: value } : { tag }, reason, optional };
        }),
        // This engine takes u64 as a number and traps on a BigInt.
        limits: {
          fuel: limits.fuel,
          memory: limits.memory,
          output: limits.output,
          timeoutMs: limits.timeoutMs,
        },
        examples: (given.examples ?? []).map((example) => ({ ...example, args: JSON.stringify(example.args ?? {}) })),
      };
    },

    run(args, input, output) {
      const sink = new Output(output);
      const source = new Input(input);
      seedCrypto(() => `${given.name} ${args} ${source.first}`);
      try {
        given.run(JSON.parse(args), source, sink);
        runMicrotasks();
        sink.flush();
      } catch (error) {
        // What is not the contract's error would be a trap without a message.
        throw asStepError(error);
      }
    },
  };
}

function asStepError(error) {
  // Errors of the host's streams arrive with their record as payload.
  const said = error?.payload ?? error;
  if (typeof said?.code === "string") {
    return { code: said.code, message: String(said.message ?? ""), retryable: said.retryable === true };
  }
  const place = typeof error?.stack === "string" ? (error.stack.trim().split("\n")[0] ?? "").trim() : "";
  return { code: "exception", message: place ? `${error} (${place})` : String(error), retryable: false };
}

class Input {
  #input;
  /** What was read first. */
  first = [];

  constructor(input) {
    this.#input = input;
  }

  /** `empty` (none at all), `bytes` or `items`. */
  get kind() {
    return this.#input.payload();
  }

  /** The items, one after the other. Bytes are one text item. */
  *items() {
    for (;;) {
      const texts = this.#input.next(ITEMS_AT_ONCE);
      if (texts.length === 0) return;
      if (this.first.length === 0) this.first = texts;
      for (const text of texts) yield JSON.parse(text);
    }
  }

  /** The bytes in chunks (Uint8Array); items come as JSON Lines. */
  *bytes() {
    for (;;) {
      const chunk = this.#input.read(BYTES_AT_ONCE);
      if (chunk.length === 0) return;
      if (this.first.length === 0) this.first = chunk;
      yield Uint8Array.from(chunk);
    }
  }

  /** All of the input as text (UTF-8); items come as JSON Lines. */
  text() {
    return [...this.#texts()].join("");
  }

  /** The lines of the text, without what ends them. */
  *lines() {
    let rest = "";
    for (const text of this.#texts()) {
      const lines = (rest + text).split("\n");
      rest = lines.pop();
      for (const line of lines) yield line.endsWith("\r") ? line.slice(0, -1) : line;
    }
    if (rest !== "") yield rest;
  }

  *#texts() {
    const decoder = new TextDecoder("utf-8", { fatal: true });
    try {
      for (const chunk of this.bytes()) yield decoder.decode(chunk, { stream: true });
      yield decoder.decode();
    } catch (error) {
      throw error instanceof TypeError ? new StepError("bad-input", "the input is not UTF-8") : error;
    }
  }
}

class Output {
  #output;
  #items = [];

  constructor(output) {
    this.#output = output;
  }

  /** Gives one item. A step gives items or bytes, not both. */
  emit(item) {
    const text = JSON.stringify(item);
    if (text === undefined) throw new StepError("bad-output", "an item cannot be JSON");
    this.#items.push(text);
    if (this.#items.length >= ITEMS_AT_ONCE) this.flush();
  }

  /** Gives bytes. */
  write(bytes) {
    this.#output.write(bytes);
  }

  /** Hands on what is still buffered; done for you at the end. */
  flush() {
    if (this.#items.length > 0) this.#output.emit(this.#items);
    this.#items = [];
  }
}

/** A line in the step's log: trace, debug, info, warn or error. */
export function log(level, message, fields) {
  host.log(level, message, fields === undefined ? "" : JSON.stringify(fields));
}

/** How far the step is, for the person who waits. */
export function progress(done, total, message) {
  host.progress(done, total, message);
}

/** A value kept for the rest of the run. */
export const state = {
  get(key) {
    const text = host.stateGet(key);
    return text === undefined || text === null ? undefined : JSON.parse(text);
  },
  set(key, value) {
    host.stateSet(key, JSON.stringify(value));
  },
};
