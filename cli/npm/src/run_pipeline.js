// `runPipeline`: stages one after the other in this process, each a command of a registry.

import { InputRequestSuspension, RequestMismatch, assertConsumed, createRequestInput, trackInput } from "./request_input.js";

/**
 * Runs the stages of a pipeline with the commands of a registry. A command of
 * `createDefaultRegistry` is a run of the program; one of the caller's own is a function here.
 *
 * @param {import("./core.d.ts").PipelineRequest} request
 * @returns {Promise<import("./core.d.ts").PipelineResult>}
 */
export async function runPipeline(request) {
  const { pipeline, registry, signal, requestInputResume } = request;
  if (request.dryRun) return dryRun(request);
  /** @type {unknown[]} */
  const renderedItems = [];
  /** @type {AsyncIterable<unknown> | Iterable<unknown>} */
  let stream = request.input ?? [];
  let rendered = false;
  /** @type {import("./core.d.ts").PipelineResult["haltedAt"]} */
  let haltedAt = null;
  let executionStarted = false;
  const written = { any: false };
  const stdout = watched(request.stdout, written);

  /** @param {unknown} error @param {number} count  items that were given already */
  const suspend = (error, count) => {
    if (!(error instanceof InputRequestSuspension)) {
      if (!(error instanceof RequestMismatch)) assertConsumed(requestInputResume);
      throw error;
    }
    if (count > 0) throw new Error("requestInput cannot suspend after this command has produced output");
    haltedAt = { index: error.stageIndex, stage: pipeline[error.stageIndex], inPlace: true };
    return [error.request];
  };

  for (const [index, stage] of pipeline.entries()) {
    signal?.throwIfAborted();
    const command = registry.get(stage.name);
    if (!command) throw new Error(`Unknown command: ${stage.name}`);
    if (command.meta?.resumeSafeBeforeInput !== true) executionStarted = true;
    const resume = index === 0 ? requestInputResume : undefined;
    const isLast = index === pipeline.length - 1;
    /** @type {string | undefined} */
    let refusal;
    const input = trackInput(stream);
    const requestInput =
      request.requestInputEnabled === false
        ? unsupported()
        : createRequestInput({
            index,
            items: input.replay,
            resume,
            refusal: () => (written.any ? "requestInput cannot suspend after this command has produced output" : refusal),
          });
    const ctx = { ...contextOf(request, stdout, renderedItems), requestInput };
    let result;
    try {
      result = await command.run({ input: input.items, args: stage.args, ctx });
    } catch (error) {
      await input.close();
      stream = suspend(error, 0);
      break;
    }
    rendered ||= Boolean(result?.rendered);
    const output = result?.output ?? [];
    const halts = Boolean(result?.halt);
    if (!isLast && !halts) refusal = "requestInput cannot suspend from lazy output before downstream stages";
    if (Array.isArray(output) || !isLast) assertConsumed(resume);
    // What is given bit by bit may still read its input.
    stream = Array.isArray(output) ? output : closingAfter(output, input);
    if (Array.isArray(output)) await input.close();
    if (halts) {
      haltedAt = { index, stage };
      break;
    }
  }
  const items = [];
  try {
    for await (const item of stream) items.push(item);
  } catch (error) {
    const asked = suspend(error, items.length);
    items.splice(0, items.length, ...asked);
  }
  if (request.haltAfterStageOnAbort) signal?.throwIfAborted();
  if (!haltedAt) assertConsumed(requestInputResume);
  return { items, rendered, renderedItems, halted: haltedAt !== null, haltedAt, executionStarted };
}

/** Writes the plan to stderr; nothing runs. */
function dryRun(/** @type {import("./core.d.ts").PipelineRequest} */ { pipeline, registry, stderr }) {
  const lines = pipeline.map(({ name, args }, index) => {
    if (!registry.get(name)) throw new Error(`Unknown command: ${name}`);
    const options = Object.entries(args ?? {}).filter(([key]) => key !== "_");
    const shown = [...(args?._ ?? []), ...options.map(([key, value]) => `${key}=${typeof value === "string" ? value : JSON.stringify(value)}`)];
    return `  ${index + 1}. ${name}${shown.length > 0 ? `  args: ${shown.join(", ")}` : ""}`;
  });
  stderr?.write(`[DRY RUN] Pipeline (${pipeline.length} stage${pipeline.length === 1 ? "" : "s"}):\n${lines.join("\n")}\n`);
  return { items: [], rendered: true, renderedItems: [], halted: false, haltedAt: null, executionStarted: false };
}

/**
 * @param {import("./core.d.ts").PipelineRequest} request
 * @param {any} stdout
 * @param {unknown[]} renderedItems
 */
function contextOf(request, stdout, renderedItems) {
  const { stdin, stderr, env = process.env, registry, mode = "human", cwd, llmAdapters, signal, forceTerminationSignal, onNonRetryableSideEffect } = request;
  const render = {
    json(/** @type {unknown} */ items) {
      renderedItems.push(...(Array.isArray(items) ? items : [items]));
      stdout?.write(`${JSON.stringify(items, null, 2)}\n`);
    },
    lines(/** @type {unknown[]} */ lines) {
      for (const line of lines) stdout?.write(`${line}\n`);
    },
  };
  return { stdin, stdout, stderr, env, registry, mode, cwd, llmAdapters, signal, forceTerminationSignal, onNonRetryableSideEffect, render };
}

/** A stream that remembers whether anything was written to it. */
function watched(/** @type {any} */ stream, /** @type {{any: boolean}} */ written) {
  if (!stream) return undefined;
  return new Proxy(stream, {
    get(target, name) {
      const value = Reflect.get(target, name);
      if (typeof value !== "function") return value;
      return (/** @type {unknown[]} */ ...args) => {
        if (name === "write" || name === "end") written.any = true;
        return value.apply(target, args);
      };
    },
  });
}

/**
 * The items, and after the last one the input is closed.
 *
 * @param {AsyncIterable<unknown> | Iterable<unknown>} output
 * @param {{close: () => Promise<void>}} input
 */
async function* closingAfter(output, input) {
  try {
    yield* output;
  } finally {
    await input.close();
  }
}

/** @returns {import("./core.d.ts").RequestInput} */
function unsupported() {
  const requestInput = async () => {
    throw new Error("requestInput is not supported in this pipeline context");
  };
  requestInput.getSuspendedState = () => undefined;
  return requestInput;
}
