// `runWorkflowFile`: a workflow file over the program, with errors thrown.

import { resumeToolRequest, runToolRequest } from "./requests.js";
import { encodeToken } from "./token.js";

/**
 * Runs a workflow file, or goes on with one whose token {@link decodeResumeToken} has read.
 *
 * @param {import("./core.d.ts").WorkflowRequest} request
 * @returns {Promise<import("./core.d.ts").WorkflowResult>}
 * @throws {Error} when the run fails
 */
export async function runWorkflowFile({ filePath, args, ctx = {}, resume, approved, response, cancel }) {
  const envelope = resume
    ? await resumeToolRequest({ token: encodeToken(resume), approved, response, cancel, ctx: toolContext(ctx) })
    : await runToolRequest({ filePath, args, ctx: toolContext(ctx) });
  if (!envelope.ok) throw new Error(envelope.error.message);
  const { status, output, requiresApproval, requiresInput } = envelope;
  return {
    status,
    output,
    ...(requiresApproval ? { requiresApproval } : {}),
    ...(requiresInput ? { requiresInput } : {}),
  };
}

/** Only what a tool call reads: the rest of a run's context means nothing to another program. */
function toolContext(/** @type {import("./core.d.ts").ToolContext} */ ctx) {
  const { cwd, env, mode, stderr, signal, forceTerminationSignal, limits, registry, llmAdapters } = ctx;
  return { cwd, env, mode, stderr, signal, forceTerminationSignal, limits, registry, llmAdapters };
}
