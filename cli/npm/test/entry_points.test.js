// Every entry point of the incumbent's package is there, also once it is packed and installed.

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";

import {
  createDefaultRegistry,
  createToolContext,
  decodeResumeToken,
  findBinary,
  parsePipeline,
  resumeToolRequest,
  runPipeline,
  runToolRequest,
  runWorkflowFile,
} from "lobster-runtime/core";

import { stageText } from "../src/pipeline_text.js";

const binary = findBinary();
const root = mkdtempSync(path.join(tmpdir(), "lobster-entry-"));
after(() => rmSync(root, { recursive: true, force: true }));

function home() {
  const cwd = mkdtempSync(path.join(root, "home-"));
  return { cwd, env: { LOBSTER_BIN: binary, LOBSTER_STATE_DIR: path.join(cwd, "state"), HOME: cwd } };
}

/** What 2026.9.13 exports. */
const EXPORTS = {
  ".": ["Lobster", "approve", "diffLast", "exec", "runPipeline", "state", "stateGet", "stateSet"],
  "./core": [
    "createDefaultRegistry",
    "createToolContext",
    "decodeResumeToken",
    "parsePipeline",
    "resumeToolRequest",
    "runPipeline",
    "runToolRequest",
    "runWorkflowFile",
  ],
  "./recipes/github": ["ghPrView", "prMonitor", "prMonitorNotify"],
};
EXPORTS["./sdk"] = EXPORTS["."];

test("packed and installed into an empty directory, all of it loads and runs", () => {
  const dir = mkdtempSync(path.join(root, "install-"));
  const quiet = { cwd: dir, encoding: "utf8", env: { ...process.env, LOBSTER_BIN: binary, npm_config_audit: "false", npm_config_fund: "false", npm_config_update_notifier: "false", npm_config_loglevel: "error" } };
  const packed = execFileSync("npm", ["pack", "--silent", fileURLToPath(new URL("..", import.meta.url))], quiet).trim().split("\n").at(-1);
  writeFileSync(path.join(dir, "package.json"), '{"private":true,"type":"module"}');
  // Under the incumbent's name, as a host's imports want it.
  execFileSync("npm", ["install", "--offline", `@clawdbot/lobster@file:${packed}`], quiet);
  const script = `
    const names = {};
    for (const entry of ${JSON.stringify(Object.keys(EXPORTS))}) {
      names[entry] = Object.entries(await import("@clawdbot/lobster" + entry.slice(1))).filter(([, value]) => value !== undefined).map(([name]) => name);
    }
    const { Lobster, exec } = await import("@clawdbot/lobster");
    const result = await new Lobster({ stateDir: "state" }).pipe(exec("echo [1]")).run();
    console.log(JSON.stringify({ names, result }));`;
  writeFileSync(path.join(dir, "script.js"), script);
  const { names, result } = JSON.parse(execFileSync("node", ["script.js"], quiet));
  for (const [entry, wanted] of Object.entries(EXPORTS)) {
    for (const name of wanted) assert.ok(names[entry].includes(name), `${entry} has no ${name}`);
  }
  assert.deepEqual(result.output, [1], JSON.stringify(result));
  const version = execFileSync("node_modules/.bin/lobster", ["version"], quiet);
  assert.match(version, /\d+\.\d+/);
});

/** A random generator that can be had again. */
function random(seed) {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

test("what is written as a pipeline is read back, here and by the program", async () => {
  const next = random(17);
  const ALPHABET = ["a", "b", " ", "  ", "\t", "\n", '"', "'", "\\", "$", "`", "|", "=", "-", "--", "é", "${x}", "$s.json", "#", ";"];
  const word = () => Array.from({ length: 1 + next(6) }, () => ALPHABET[next(ALPHABET.length)]).join("");
  for (let round = 0; round < 500; round += 1) {
    const positional = Array.from({ length: next(4) }, word).filter((text) => !text.startsWith("--"));
    const options = Object.fromEntries(Array.from({ length: next(3) }, (_, index) => [`o${index}`, word()]));
    const [stage, ...others] = parsePipeline(stageText("name", { _: positional, ...options }));
    assert.deepEqual(others, []);
    const { "": _end, ...args } = stage.args;
    const words = "" in stage.args && stage.args[""] !== true ? [stage.args[""], ...args._] : args._;
    assert.deepEqual({ ...args, _: words }, { ...options, _: positional });
  }
  const words = Array.from({ length: 60 }, word);
  const text = stageText("exec", { json: "true", _: ["node", "-p", "JSON.stringify(process.argv.slice(1))", "--", ...words] });
  const envelope = await runToolRequest({ pipeline: text, ctx: home() });
  assert.deepEqual(envelope.output, words, JSON.stringify(envelope));
});

test("pipeline text that is none is told so", () => {
  for (const [text, why] of [["", /Empty pipeline/], [" ", /Empty pipeline/], ["a | | b", /Empty command stage/], ["a 'b", /Unclosed quote/]]) {
    assert.throws(() => parsePipeline(text), why);
  }
  assert.deepEqual(parsePipeline(`exec --json gh "" --x '' | head --n 2`).map(({ name, args }) => ({ name, args })), [
    { name: "exec", args: { json: true, x: "", _: ["gh", ""] } },
    { name: "head", args: { n: "2", _: [] } },
  ]);
  assert.equal(Object.getPrototypeOf(parsePipeline("a --__proto__ x")[0].args), Object.prototype);
});

test("the default registry is the program's commands", async () => {
  const registry = createDefaultRegistry();
  assert.ok(["approve", "ask", "exec", "where", "llm.invoke", "openclaw.invoke", "clawd.invoke"].every((name) => registry.list().includes(name)));
  assert.equal(registry.get("no.such"), undefined);
  assert.equal(registry.get("__proto__"), undefined);
  assert.match(registry.get("where").help(), /where/);
  const ctx = { ...createToolContext(home()) };
  const result = await runPipeline({ ...ctx, pipeline: parsePipeline("where n>1 | pick n"), input: [{ n: 1, a: 1 }, { n: 2, a: "$x.json ${y}" }] });
  assert.deepEqual(result.items, [{ n: 2 }]);
  const halted = await runPipeline({ ...ctx, pipeline: parsePipeline("approve --prompt ok? | head"), input: [1] });
  assert.deepEqual([halted.halted, halted.haltedAt.index, halted.items], [true, 0, [{ type: "approval_request", prompt: "ok?", items: [1] }]]);
});

test("commands of the caller's run in a tool request, and its questions wait in the store", async () => {
  const own = createDefaultRegistry();
  const registry = {
    get: (name) => (name === "double" ? { async run({ input }) {
      const out = [];
      for await (const item of input) out.push(item * 2);
      return { output: out };
    } } : own.get(name)),
    list: () => [...own.list(), "double"],
  };
  const ctx = { ...home(), registry };
  const asked = await runToolRequest({ pipeline: "exec --json=true echo [1,2] | double | approve --prompt ok? | double", ctx });
  assert.deepEqual([asked.status, asked.requiresApproval?.items], ["needs_approval", [2, 4]], JSON.stringify(asked));
  const token = asked.requiresApproval.resumeToken;
  assert.deepEqual((await resumeToolRequest({ token, approved: true, ctx })).output, [4, 8]);
  assert.equal((await resumeToolRequest({ token, approved: true, ctx })).ok, false);
});

test("runWorkflowFile gives a result or throws, and goes on with a decoded token", async () => {
  const ctx = home();
  const file = path.join(ctx.cwd, "flow.lobster");
  writeFileSync(file, "steps:\n  - id: a\n    approval: Send?\n  - id: b\n    run: echo '[1]'\n");
  const asked = await runWorkflowFile({ filePath: file, ctx: createToolContext(ctx) });
  assert.equal(asked.status, "needs_approval");
  const resume = decodeResumeToken(asked.requiresApproval.resumeToken);
  assert.deepEqual([resume.kind, resume.protocolVersion], ["workflow-file", 1]);
  assert.deepEqual(await runWorkflowFile({ resume, approved: true, ctx }), { status: "ok", output: [1] });
  await assert.rejects(runWorkflowFile({ resume, approved: true, ctx }), /state not found/);
  const carrying = { protocolVersion: 1, v: 1, kind: "workflow-file", filePath: file, resumeAtIndex: 1, steps: {}, args: {} };
  assert.throws(() => decodeResumeToken(Buffer.from(JSON.stringify(carrying)).toString("base64url")), /carries its own state/);
});

for (const name of ["openclaw.invoke", "clawd.invoke"]) {
  test(`${name} hands over every word as it is`, async () => {
    const wanted = { text: "O'Malley says \"hi\"\nnext", path: "C:\\x\\", literal: "$HOME `id` | head ${x} $a.json", empty: "" };
    const seen = [];
    const server = createServer(async (request, response) => {
      let body = "";
      for await (const chunk of request) body += chunk;
      seen.push(JSON.parse(body));
      response.setHeader("content-type", "application/json").end(JSON.stringify({ ok: true, result: [seen.at(-1).args] }));
    });
    await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
    const url = `http://127.0.0.1:${server.address().port}`;
    const { env, cwd } = home();
    const shim = fileURLToPath(new URL(`../bin/${name}.js`, import.meta.url));
    const words = ["--url", url, "--tool", "proof | tool", "--action", "read", "--args-json", JSON.stringify(wanted)];
    const child = spawn(process.execPath, [shim, ...words], { cwd, env: { ...process.env, ...env, OPENCLAW_TOKEN: "", CLAWD_TOKEN: "" } });
    let stdout = "";
    let stderr = "";
    child.stdout.on("data", (text) => (stdout += text));
    child.stderr.on("data", (text) => (stderr += text));
    const code = await new Promise((resolve) => child.once("close", resolve));
    server.close();
    assert.equal(code, 0, stderr);
    assert.deepEqual(JSON.parse(stdout), [wanted]);
    assert.deepEqual([seen[0].tool, seen[0].args], ["proof | tool", wanted]);
  });
}
