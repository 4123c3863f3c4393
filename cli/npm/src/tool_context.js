// The context that a tool call has when the caller says nothing else.

import { Writable } from "node:stream";

import { createDefaultRegistry } from "./registry.js";

/**
 * @param {import("./core.d.ts").ToolContext} [ctx]
 * @returns {import("./core.d.ts").FullToolContext}
 */
export function createToolContext(ctx = {}) {
  return {
    cwd: ctx.cwd ?? process.cwd(),
    env: { ...process.env, ...ctx.env },
    mode: "tool",
    stdin: ctx.stdin ?? process.stdin,
    stdout: ctx.stdout ?? deaf(),
    stderr: ctx.stderr ?? deaf(),
    signal: ctx.signal,
    forceTerminationSignal: ctx.forceTerminationSignal,
    registry: ctx.registry ?? createDefaultRegistry(),
    llmAdapters: ctx.llmAdapters,
    ...(ctx.limits === undefined ? {} : { limits: ctx.limits }),
  };
}

/** A stream that nobody reads. */
function deaf() {
  return new Writable({ write: (_chunk, _encoding, done) => done() });
}
