// Tool requests with a registry of the caller's: its commands are functions of this process, so the
// pipeline runs here. The program's commands and the questions are runs of the program.

import { message } from "./call.js";
import { parsePipeline } from "./pipeline_text.js";
import { askPerson, goOn, placeAfter, requestOf } from "./question.js";
import { isDefaultRegistry } from "./registry.js";
import { runPipeline } from "./run_pipeline.js";
import { createToolContext } from "./tool_context.js";

/** Marks what a question of such a pipeline gives back when it is answered. */
const RECORD = "lobster.pipeline.question.v1";

/** Whether commands of the caller's are to be used. */
export function hasOwnRegistry(/** @type {import("./core.d.ts").ToolContext} */ ctx) {
  return ctx.registry !== undefined && !isDefaultRegistry(ctx.registry);
}

/**
 * @param {string} text
 * @param {import("./core.d.ts").ToolContext} ctx
 * @returns {Promise<import("./core.d.ts").Envelope>}
 */
export async function runOwnPipeline(text, ctx) {
  let pipeline;
  try {
    pipeline = parsePipeline(text);
  } catch (error) {
    return failed("parse_error", error);
  }
  return run(pipeline, { input: [] }, ctx);
}

/**
 * Goes on after a question, once the program has taken the answer.
 *
 * @param {import("./core.d.ts").Envelope} answered
 * @param {unknown} response
 * @param {import("./core.d.ts").ToolContext} ctx
 * @returns {Promise<import("./core.d.ts").Envelope>}
 */
export async function resumeOwnPipeline(answered, response, ctx) {
  const record = answered.ok && answered.status === "ok" ? /** @type {any} */ (answered.output[0]) : undefined;
  // A run of the program's own, or an answer that ended it.
  if (record?.type !== RECORD) return answered;
  return run(record.pipeline.slice(record.next), goOn(record, response), ctx);
}

/**
 * @param {import("./core.d.ts").PipelineStage[]} pipeline
 * @param {{input: unknown[], requestInputResume?: import("./core.d.ts").InputResume}} from
 * @param {import("./core.d.ts").ToolContext} given
 * @returns {Promise<import("./core.d.ts").Envelope>}
 */
async function run(pipeline, from, given) {
  try {
    const ctx = createToolContext(given);
    const result = await runPipeline({ ...ctx, pipeline, ...from, haltAfterStageOnAbort: true });
    const request = requestOf(result);
    if (!request) return { ...NOTHING, output: result.items };
    const place = placeAfter(request, result.haltedAt?.index ?? 0);
    const asked = await askPerson(request, { type: RECORD, pipeline, ...place }, { ...ctx, llmAdapters: undefined });
    const { items: _items, commandInput: _commandInput, ...shown } = request;
    if (asked.requiresApproval) {
      const { resumeToken, approvalId } = asked.requiresApproval;
      return { ...NOTHING, status: "needs_approval", requiresApproval: { ...request, resumeToken, approvalId } };
    }
    const resumeToken = asked.requiresInput?.resumeToken ?? "";
    return { ...NOTHING, status: "needs_input", requiresInput: { ...shown, resumeToken } };
  } catch (error) {
    return failed("runtime_error", error);
  }
}

/** @type {Extract<import("./core.d.ts").Envelope, {ok: true}>} */
const NOTHING = { protocolVersion: 1, ok: true, status: "ok", output: [], requiresApproval: null, requiresInput: null };

/**
 * @param {string} type
 * @param {unknown} error
 * @returns {import("./core.d.ts").Envelope}
 */
function failed(type, error) {
  return { protocolVersion: 1, ok: false, error: { type, message: message(error) } };
}
