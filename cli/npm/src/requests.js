// The two entry points that OpenClaw's Lobster tool calls in its own process,
// over the lobster program. They answer with the envelope as a value, and do
// not throw for ordinary failures.

import { RequestError, answer, call, callWith, jsonText, text, workflowFile } from "./context.js";

/**
 * Runs a pipeline or a workflow file to its end or its first question.
 *
 * @param {import("./core.d.ts").RunRequest} request
 * @returns {Promise<import("./core.d.ts").Envelope>}
 */
export async function runToolRequest({ pipeline, filePath, args, ctx = {} }) {
  const hasPipeline = typeof pipeline === "string" && pipeline.trim().length > 0;
  const hasFile = typeof filePath === "string" && filePath.trim().length > 0;
  const work = async (/** @type {import("./context.js").Context} */ context) => {
    if (!hasPipeline && !hasFile) throw new RequestError("run requires either pipeline or filePath");
    if (hasPipeline && hasFile) throw new RequestError("run accepts either pipeline or filePath, not both");
    const run = ["run", "--mode=tool"];
    if (hasPipeline) return callWith(context, run, "--pipeline", pipeline);
    const file = await workflowFile(String(filePath), context.cwd);
    run.push(`--file=${file}`);
    return args === undefined ? call(context, run) : callWith(context, run, "--args-json", jsonText(args, "args"));
  };
  return answer(ctx, work, hasPipeline ? pipeline : undefined);
}

/**
 * Answers a question and goes on with its run.
 *
 * @param {import("./core.d.ts").ResumeRequest} request
 * @returns {Promise<import("./core.d.ts").Envelope>}
 */
export async function resumeToolRequest({ token, approvalId, approved, response, cancel, ctx = {} }) {
  return answer(ctx, async (context) => {
    const resume = ["resume"];
    if (approvalId) resume.push(`--id=${text(approvalId, "approvalId")}`);
    else if (token) resume.push(`--token=${text(token, "token")}`);
    else throw new RequestError("resume requires token or approvalId");
    if (cancel === true) return call(context, [...resume, "--cancel"]);
    if (approved !== undefined && typeof approved !== "boolean") throw new RequestError("approved must be true or false");
    if (approved !== undefined && response !== undefined) {
      throw new RequestError("resume accepts only one of approved, response, or cancel");
    }
    if (response !== undefined) return callWith(context, resume, "--response-json", jsonText(response, "response"));
    // Silence is no answer: the incumbent takes it as a refusal, which cannot be taken back.
    if (approved === undefined) throw new RequestError("resume requires approved, response, or cancel");
    return call(context, [...resume, `--approve=${approved ? "yes" : "no"}`]);
  });
}
