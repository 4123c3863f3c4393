// `Lobster`: a pipeline of stages in this process, whose questions are runs of the program.

import { askPerson, goOn, placeAfter, requestOf } from "../question.js";
import { resumeToolRequest } from "../requests.js";
import { runPipeline } from "../run_pipeline.js";
import { toolContext } from "../stage.js";
import { decodeResumeToken } from "../token.js";
import { PASSED } from "./stages.js";

/** Marks what a question of this SDK gives back when it is answered. */
const RECORD = "lobster.sdk.question.v1";

/** A pipeline of stages. */
export class Lobster {
  /** @type {import("./index.d.ts").StageLike[]} */
  #stages = [];
  /** @type {import("./index.d.ts").LobsterOptions} */
  #options;
  /** @type {Record<string, unknown> | null} */
  #meta = null;

  /** @param {import("./index.d.ts").LobsterOptions} [options] */
  constructor(options = {}) {
    this.#options = { env: options.env ?? process.env, stateDir: options.stateDir, signal: options.signal };
  }

  /**
   * Adds a stage: a function of the items, a generator, or an object with `run`.
   *
   * @param {import("./index.d.ts").StageLike} stage
   * @returns {this}
   */
  pipe(stage) {
    if (typeof stage !== "function" && typeof stage?.run !== "function") {
      throw new Error("Stage must be a function or have a run() method");
    }
    this.#stages.push(stage);
    return this;
  }

  /**
   * Notes about the pipeline.
   *
   * @param {Record<string, unknown>} meta
   * @returns {this}
   */
  meta(meta) {
    this.#meta = meta;
    return this;
  }

  getMeta() {
    return this.#meta;
  }

  /**
   * Runs the stages to their end or their first question. Does not throw for what a stage does.
   *
   * @param {unknown[]} [initialInput]
   * @returns {Promise<import("./index.d.ts").LobsterResult>}
   */
  async run(initialInput = []) {
    return this.#run(0, initialInput);
  }

  /**
   * Answers a question and goes on after it. The token works once.
   *
   * @param {string} token
   * @param {import("./index.d.ts").ResumeOptions} [options]
   * @returns {Promise<import("./index.d.ts").LobsterResult>}
   * @throws {Error} when the token or the answer is wrong
   */
  async resume(token, options = {}) {
    const { approved, response, cancel } = options;
    const answers = Number(typeof approved === "boolean") + Number(response !== undefined) + Number(cancel === true);
    if (answers > 1) throw new Error("resume accepts only one of approved, response, or cancel");
    if (answers === 0) throw new Error("resume requires approved, response, or cancel");
    decodeResumeToken(token);
    const envelope = await resumeToolRequest({ token, approved, response, cancel, ctx: toolContext(this.#options) });
    if (!envelope.ok) throw new Error(inWordsOfSdk(envelope.error.message));
    if (envelope.status === "cancelled") return ended("cancelled", []);
    const [record] = /** @type {import("./index.d.ts").QuestionRecord[]} */ (envelope.output);
    if (record?.type !== RECORD) throw new Error("this token's question is not one of the SDK");
    this.#check(record);
    const { input, requestInputResume } = goOn(record, response);
    return this.#run(record.next, input, requestInputResume);
  }

  /** The same stages again, to which others can be added. */
  clone() {
    const cloned = new Lobster(this.#options);
    cloned.#stages = [...this.#stages];
    cloned.#meta = this.#meta ? { ...this.#meta } : null;
    return cloned;
  }

  /** Fails unless these are the stages that asked: another pipeline's answer must not start them. */
  #check(/** @type {import("./index.d.ts").QuestionRecord} */ record) {
    if (JSON.stringify(record.stages) === JSON.stringify(this.#kinds())) return;
    throw new Error(
      `the stages are not those that asked: ${this.#kinds().join(" | ")} now, ${record.stages.join(" | ")} then; run the workflow again`,
    );
  }

  /** What each stage is, as far as can be seen from outside. */
  #kinds() {
    return this.#stages.map((stage) => (typeof stage === "function" ? "function" : String(stage.type ?? "object")));
  }

  /**
   * @param {number} first
   * @param {unknown[]} input
   * @param {import("../core.d.ts").InputResume} [requestInputResume]
   * @returns {Promise<import("./index.d.ts").LobsterResult>}
   */
  async #run(first, input, requestInputResume) {
    const { env, stateDir, signal } = this.#options;
    const ctx = { env, stateDir, mode: "sdk", signal };
    const stages = this.#stages.slice(first);
    try {
      const result = await runPipeline({
        pipeline: stages.map((_stage, index) => ({ name: String(index), args: { _: [] }, raw: String(index) })),
        registry: { get: (name) => commandOf(stages[Number(name)], ctx), list: () => [] },
        stdin: { isTTY: false },
        env,
        mode: "sdk",
        signal,
        input: listOf(input),
        requestInputResume,
      });
      const request = requestOf(result);
      return request ? await this.#ask(request, first + (result.haltedAt?.index ?? 0), ctx) : ended("ok", result.items);
    } catch (error) {
      const message = error instanceof Error ? error.message : String(error);
      return { ...ended("error", []), ok: false, error: { type: "runtime_error", message } };
    }
  }

  /**
   * @param {any} request
   * @param {number} at
   * @param {import("../core.d.ts").RunContext} ctx
   * @returns {Promise<import("./index.d.ts").LobsterResult>}
   */
  async #ask(request, at, ctx) {
    const place = placeAfter(PASSED in request ? { ...request, items: request[PASSED] } : request, at);
    const asked = await askPerson(request, { type: RECORD, ...place, stages: this.#kinds() }, ctx);
    const { prompt, items, responseSchema, defaults, subject } = request;
    if (asked.requiresApproval) {
      const { resumeToken, approvalId } = asked.requiresApproval;
      return { ...ended("needs_approval", []), requiresApproval: { prompt, items, resumeToken, approvalId } };
    }
    const resumeToken = asked.requiresInput?.resumeToken ?? "";
    return { ...ended("needs_input", []), requiresInput: { prompt, responseSchema, defaults, subject, resumeToken } };
  }
}

/**
 * @param {"ok" | "needs_approval" | "needs_input" | "cancelled" | "error"} status
 * @param {unknown[]} output
 * @returns {import("./index.d.ts").LobsterResult}
 */
function ended(status, output) {
  return { ok: true, status, output, requiresApproval: null, requiresInput: null };
}

/**
 * @param {import("./index.d.ts").StageLike} stage
 * @param {import("../core.d.ts").RunContext} runCtx
 * @returns {import("../core.d.ts").Command}
 */
function commandOf(stage, runCtx) {
  return {
    async run({ input, ctx }) {
      const stageCtx = { ...runCtx, ...ctx, stateDir: runCtx.stateDir };
      if (typeof stage !== "function") {
        const result = await stage.run({ input, ctx: stageCtx });
        return result && "output" in result ? { ...result, output: listOf(result.output) } : result;
      }
      if (/^(Async)?GeneratorFunction$/.test(stage.constructor.name)) return { output: listOf(stage(input, stageCtx)) };
      const items = [];
      for await (const item of input) items.push(item);
      return { output: listOf(await stage(items, stageCtx)) };
    },
  };
}

/** Nothing is no item, one thing is one; what can be iterated stays. */
function listOf(/** @type {any} */ output) {
  if (output === null || output === undefined) return [];
  if (typeof output === "string") return [output];
  const iterates = typeof output[Symbol.asyncIterator] === "function" || typeof output[Symbol.iterator] === "function";
  return iterates ? output : [output];
}

/** The program's errors about answers, where the SDK has words of its own. */
function inWordsOfSdk(/** @type {string} */ message) {
  if (/approve yes\|no for approval requests/.test(message)) return "resume token expects approved=true|false, not response";
  if (/response-json for input requests/.test(message)) return "resume token expects an input response, not approved";
  return message.replace(/^.* response failed schema validation at /s, "response does not match schema at ");
}
