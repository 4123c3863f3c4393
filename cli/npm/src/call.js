// One call of the lobster program: a process group of its own, one answer.

import { spawn } from "node:child_process";

/** Time between asking the program to end and insisting. It ends its steps meanwhile, and says so in the journal. */
const GRACE_MS = 5_000;

/** Text of a failing call that is quoted. */
const QUOTED = 4_000;

/** Groups that must not outlive this process. @type {Set<import("node:child_process").ChildProcess>} */
const running = new Set();

process.on("exit", () => {
  for (const child of running) kill(child, "SIGKILL");
});

/**
 * Why a call gave no envelope.
 */
export class CallError extends Error {}

/**
 * Runs the program and reads its envelope.
 *
 * @param {object} call
 * @param {string} call.binary
 * @param {string[]} call.argv
 * @param {string} call.cwd
 * @param {NodeJS.ProcessEnv} call.env
 * @param {string | undefined} call.input  what it reads from stdin
 * @param {NodeJS.WritableStream | undefined} call.stderr  who hears its remarks
 * @param {AbortSignal | undefined} call.signal  ends it, with time to clean up
 * @param {AbortSignal | undefined} call.forceSignal  ends it at once
 * @param {number} call.maxStdoutBytes
 * @returns {Promise<unknown>}
 */
export function callLobster(call) {
  return new Promise((resolve, reject) => {
    for (const signal of [call.forceSignal, call.signal]) {
      if (signal?.aborted) return reject(abortError(signal));
    }
    /** @type {import("node:child_process").ChildProcess} */
    let child;
    try {
      child = spawn(call.binary, call.argv, {
        cwd: call.cwd,
        env: call.env,
        stdio: [call.input === undefined ? "ignore" : "pipe", "pipe", "pipe"],
        detached: true,
        windowsHide: true,
      });
    } catch (error) {
      return reject(new CallError(`cannot start ${call.binary}: ${message(error)}`));
    }
    running.add(child);

    /** @type {Buffer[]} */
    const stdout = [];
    let stdoutBytes = 0;
    let remarks = "";
    /** @type {Error | undefined} */
    let failure;
    /** @type {NodeJS.Timeout | undefined} */
    let insist;

    const end = (/** @type {Error} */ error, /** @type {NodeJS.Signals} */ how) => {
      failure ??= error;
      kill(child, how);
      if (how !== "SIGKILL") insist ??= setTimeout(() => kill(child, "SIGKILL"), GRACE_MS);
    };
    const onAbort = () => end(abortError(/** @type {AbortSignal} */ (call.signal)), "SIGTERM");
    const onForce = () => end(abortError(/** @type {AbortSignal} */ (call.forceSignal)), "SIGKILL");
    const onSink = (/** @type {Error} */ error) => end(error, "SIGTERM");
    call.signal?.addEventListener("abort", onAbort, { once: true });
    call.forceSignal?.addEventListener("abort", onForce, { once: true });
    call.stderr?.on("error", onSink);

    const settle = (/** @type {() => void} */ how) => {
      running.delete(child);
      clearTimeout(insist);
      call.signal?.removeEventListener("abort", onAbort);
      call.forceSignal?.removeEventListener("abort", onForce);
      call.stderr?.removeListener("error", onSink);
      how();
    };

    child.stdout?.on("data", (/** @type {Buffer} */ chunk) => {
      stdoutBytes += chunk.length;
      if (stdoutBytes > call.maxStdoutBytes) {
        stdout.length = 0;
        end(new CallError(`lobster's answer is larger than ${call.maxStdoutBytes} bytes (limits.maxStdoutBytes)`), "SIGTERM");
      } else if (!failure) {
        stdout.push(chunk);
      }
    });
    child.stderr?.setEncoding("utf8");
    child.stderr?.on("data", (/** @type {string} */ text) => {
      remarks = (remarks + text).slice(-QUOTED);
      if (!failure) call.stderr?.write(text);
    });
    // A program that ends before it has read everything is no failure by itself.
    child.stdin?.on("error", () => {});
    child.stdin?.end(call.input);

    child.once("error", (error) => {
      settle(() => reject(failure ?? new CallError(`cannot start ${call.binary}: ${error.message}`)));
    });
    // `close` and not `exit`: all of stdout is here. Nothing holds it open, since the program ends all it started.
    child.once("close", (code, signal) => {
      settle(() => {
        if (failure) return reject(failure);
        const text = Buffer.concat(stdout).toString("utf8");
        try {
          resolve(JSON.parse(text));
        } catch {
          const how = signal ? `was ended by ${signal}` : `ended with code ${code}`;
          const said = remarks.trim() || text.trim().slice(0, QUOTED) || "nothing";
          reject(new CallError(`lobster ${how} without an envelope; it said: ${said}`));
        }
      });
    });
  });
}

/**
 * Signals a whole process group.
 *
 * @param {import("node:child_process").ChildProcess} child
 * @param {NodeJS.Signals} signal
 */
function kill(child, signal) {
  if (child.pid === undefined) return;
  try {
    process.kill(process.platform === "win32" ? child.pid : -child.pid, signal);
  } catch {
    // It is gone already.
  }
}

/** @param {AbortSignal} signal */
function abortError(signal) {
  const reason = signal.reason;
  return new CallError(reason instanceof Error ? reason.message : reason === undefined ? "This operation was aborted" : String(reason));
}

/** @param {unknown} error */
export function message(error) {
  return error instanceof Error ? error.message : String(error);
}
