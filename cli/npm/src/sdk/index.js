// The SDK of `@clawdbot/lobster`, over the lobster program: stages are functions of this process;
// commands, state and questions are the program's.

export { runPipeline } from "../run_pipeline.js";
export { Lobster } from "./lobster.js";
export { approve, diffLast, exec, shell, state, stateGet, stateSet } from "./stages.js";
