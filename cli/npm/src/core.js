// `@clawdbot/lobster/core`, over the lobster program.

export { findBinary, PLATFORM_PACKAGE } from "./binary.js";
export { parsePipeline } from "./pipeline_text.js";
export { createDefaultRegistry } from "./registry.js";
export { resumeToolRequest, runToolRequest } from "./requests.js";
export { runPipeline } from "./run_pipeline.js";
export { createToolContext } from "./tool_context.js";
export { decodeResumeToken } from "./token.js";
export { runWorkflowFile } from "./workflow_file.js";
