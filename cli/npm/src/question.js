// A question of a pipeline that runs in this process: a run of the program that waits for a person
// and then gives back where to go on. That lies in the program's store until then, and the token names the run.

import { runSteps } from "./stage.js";

/**
 * Asks what a halted pipeline wants to know.
 *
 * @param {any} request  its `approval_request` or `input_request`
 * @param {object} record  what an answer gives back
 * @param {import("./core.d.ts").RunContext} ctx
 * @returns {Promise<Extract<import("./core.d.ts").Envelope, {ok: true}>>}
 */
export async function askPerson(request, record, ctx) {
  const steps = [questionOf(request), { id: "record", pipeline: "head --n 1", stdin: [record] }];
  const envelope = await runSteps({ name: "question", steps, ctx });
  if (!envelope.ok) throw new Error(envelope.error.message);
  if (!envelope.requiresApproval && !envelope.requiresInput) throw new Error("the program did not ask");
  return envelope;
}

/** The step that asks. */
function questionOf(/** @type {any} */ { type, prompt, items, preview, responseSchema, defaults, subject }) {
  if (type === "approval_request") {
    return { id: "gate", approval: { prompt, ...(preview === undefined ? {} : { preview }) }, stdin: items ?? [] };
  }
  const input = { prompt, responseSchema, ...(defaults === undefined ? {} : { defaults }) };
  // A text would be searched for references, the only item of a list is not.
  return { id: "gate", input, ...(subject === undefined ? {} : { stdin: typeof subject === "string" ? [subject] : subject }) };
}

/**
 * Where a pipeline goes on after its question.
 *
 * @param {any} request
 * @param {number} at  the stage that asked
 */
export function placeAfter(request, at) {
  // A command that asked in the middle of its work is called again; after one that only asks comes the next.
  if (request.commandInput) return { next: at, items: request.items ?? [], commandInput: request.commandInput };
  return { next: at + 1, items: request.type === "approval_request" ? (request.items ?? []) : [] };
}

/**
 * What the next stage reads after an answer.
 *
 * @param {import("./core.d.ts").Place} place
 * @param {unknown} response  undefined after a yes
 * @returns {{input: unknown[], requestInputResume?: import("./core.d.ts").InputResume}}
 */
export function goOn({ items, commandInput }, response) {
  if (response === undefined) return { input: items };
  if (!commandInput) return { input: [response] };
  return { input: items, requestInputResume: { state: commandInput, response } };
}

/** The one request that a halted pipeline gave. */
export function requestOf(/** @type {import("./core.d.ts").PipelineResult} */ result) {
  const request = result.halted && result.items.length === 1 ? /** @type {any} */ (result.items[0]) : undefined;
  return request?.type === "approval_request" || request?.type === "input_request" ? request : undefined;
}
