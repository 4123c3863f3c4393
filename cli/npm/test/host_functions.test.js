// Commands and adapters that are functions of this process, called by runs of the program.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { Server } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, mock, test } from "node:test";

import { createDefaultRegistry, findBinary, resumeToolRequest, runToolRequest } from "lobster-runtime/core";

const binary = findBinary();
const root = mkdtempSync(path.join(tmpdir(), "lobster-host-"));
after(() => rmSync(root, { recursive: true, force: true }));

function home() {
  const cwd = mkdtempSync(path.join(root, "home-"));
  const env = { LOBSTER_BIN: binary, LOBSTER_STATE_DIR: path.join(cwd, "state"), LOBSTER_CACHE_DIR: path.join(cwd, "cache"), HOME: cwd };
  return { cwd, env };
}

/** A context with these commands before the program's own. */
function withCommands(commands, ctx = home()) {
  const own = createDefaultRegistry();
  const named = new Map(Object.entries(commands).map(([name, run]) => [name, { name, run }]));
  return { ...ctx, registry: { get: (name) => named.get(name) ?? own.get(name), list: () => [...own.list(), ...named.keys()] } };
}

function withAdapter(invoke, ctx = home()) {
  return { ...ctx, llmAdapters: { embedded: { source: "host", invoke } } };
}

function write(ctx, name, steps) {
  writeFileSync(path.join(ctx.cwd, name), JSON.stringify(Array.isArray(steps) ? { steps } : steps));
  return name;
}

async function itemsOf(input) {
  const items = [];
  for await (const item of input) items.push(item);
  return items;
}

const double = async ({ input }) => ({ output: (await itemsOf(input)).map((item) => item * 2) });
const answered = (text) => ({ ok: true, result: { output: { text } } });
const error = async (request) => (await runToolRequest(request)).error?.message;

test("an adapter alone: any name, at every depth, and no other step reaches it", async () => {
  const asked = [];
  const ctx = withAdapter(({ payload, args, env }) => (asked.push([payload.prompt, args.provider ?? null, env.GIVEN ?? null]), answered("yes")));
  const child = write(ctx, "child.lobster", [{ id: "l", env: { GIVEN: "child" }, pipeline: "llm.invoke --provider embedded --prompt in-child" }]);
  const filePath = write(ctx, "flow.lobster", [
    { id: "only", pipeline: "llm.invoke --prompt no-name" },
    { id: "numbers", run: "echo '[1,2]'" },
    { id: "loop", for_each: "$numbers.json", steps: [{ id: "each", pipeline: "llm.invoke --prompt looped --refresh" }] },
    { id: "sub", workflow: child },
    { id: "t", run: "echo $sub.json.output.text" },
  ]);
  assert.deepEqual((await runToolRequest({ filePath, ctx })).output, ["yes\n"]);
  assert.deepEqual(asked, [["no-name", null, null], ["looped", null, null], ["looped", null, null], ["in-child", "embedded", "child"]]);
  const knock = `exec --json=true node -e 'console.log(JSON.stringify([Object.keys(process.env).filter((name) => /HOST_FUNCTIONS/.test(name))]))'`;
  assert.deepEqual((await runToolRequest({ pipeline: knock, ctx })).output, [[]]);
});

test("the way to the functions is closed to others, and after the request", async () => {
  const listening = mock.method(Server.prototype, "listen");
  let found;
  const ctx = withCommands({
    look: async ({ ctx }) => ({ output: [Object.keys(ctx.env).some((name) => /HOST_FUNCTIONS/.test(name))] }),
    knock: async () => {
      found = `http://127.0.0.1:${listening.mock.calls[0].this.address().port}/command/knock`;
      const status = async (headers) => (await fetch(found, { method: "POST", body: "{}", headers })).status;
      return { output: [await status({}), await status({ authorization: "Bearer no" })] };
    },
  });
  assert.deepEqual((await runToolRequest({ pipeline: "knock", ctx })).output, [404, 404]);
  listening.mock.restore();
  await assert.rejects(fetch(found, { method: "POST", body: "{}" }));
  assert.deepEqual((await runToolRequest({ pipeline: "look", ctx })).output, [false]);
});

test("a registry alone: its commands work in files, and one that it hides is unknown", async () => {
  const ctx = withCommands({ double });
  const filePath = write(ctx, "flow.lobster", [
    { id: "n", run: "echo '[1,2]'" },
    { id: "d", pipeline: "double", stdin: "$n.json" },
    { id: "p", parallel: { wait: "all", branches: [{ id: "a", pipeline: "double | double", stdin: "$d.json" }, { id: "b", run: "echo b" }] } },
    { id: "t", run: "cat", stdin: "$a.json" },
  ]);
  assert.deepEqual((await runToolRequest({ filePath, ctx })).output, [8, 16]);
  const { registry } = ctx;
  const hiding = { ...ctx, registry: { get: (name) => (name === "exec" ? undefined : registry.get(name)), list: () => registry.list() } };
  assert.equal(await error({ pipeline: "exec echo hi", ctx: hiding }), "Unknown command: exec");
  assert.deepEqual((await runToolRequest({ pipeline: "commands.list | where name=exec", ctx: hiding })).ok, true);
  // Without a list, what a pipeline names is found.
  const bare = { ...ctx, registry: { get: (name) => registry.get(name) } };
  assert.deepEqual((await runToolRequest({ pipeline: "exec --json=true echo [3] | double", ctx: bare })).output, [6]);
  const alias = { ...ctx, registry: { get: (name) => registry.get(name === "keep" ? "where" : name), list: () => ["keep"] } };
  assert.deepEqual((await runToolRequest({ pipeline: "exec --json=true echo '[{\"n\":1},{\"n\":2}]' | keep n=2", ctx: alias })).output, [{ n: 2 }]);
});

test("what fails names itself, and nothing else is refused", async () => {
  const ctx = withCommands({
    throws: async () => {
      throw new Error("the agent is gone");
    },
    circular: async () => {
      const item = {};
      item.self = item;
      return { output: [item] };
    },
    big: async () => ({ output: [1n] }),
  });
  assert.equal(await error({ pipeline: "throws", ctx }), "the agent is gone");
  assert.match(await error({ pipeline: "circular", ctx }), /the answer of the command circular cannot be written as JSON/);
  assert.match(await error({ pipeline: "big", ctx }), /the answer of the command big cannot be written as JSON/);
  const broken = { ...home(), llmAdapters: { broken: 7, embedded: () => answered("x") } };
  assert.equal((await runToolRequest({ pipeline: "exec true", ctx: broken })).ok, true);
  assert.equal(await error({ pipeline: "llm.invoke --provider broken --prompt x", ctx: broken }), "Unsupported llm provider: broken");
});

test("half a surrogate pair becomes U+FFFD on every way", async () => {
  const ctx = withCommands({ cut: async () => ({ output: ["🚀".slice(0, 1), { ["🚀".slice(1)]: 1 }] }) }, withAdapter(() => answered("🚀".slice(0, 1))));
  assert.deepEqual((await runToolRequest({ pipeline: "cut", ctx })).output, ["\ufffd", { "\ufffd": 1 }]);
  const [item] = (await runToolRequest({ pipeline: "llm.invoke --provider embedded --prompt x", ctx })).output;
  assert.equal(item.output.text, "\ufffd");
  const filePath = write(ctx, "flow.lobster", { args: { text: {} }, steps: [{ id: "t", run: "cat", stdin: "${text}" }] });
  assert.deepEqual((await runToolRequest({ filePath, args: { text: "a🚀".slice(0, 2) }, ctx })).output, ["a\ufffd"]);
});

test("a step's time limit and an abort reach the function", async () => {
  const ends = [];
  const wait = ({ signal }) =>
    new Promise((_, reject) => {
      const end = () => reject(ends.push(signal.reason.message));
      if (signal.aborted) end();
      signal.addEventListener("abort", end);
    });
  const limited = withAdapter(wait);
  const filePath = write(limited, "flow.lobster", [
    { id: "l", pipeline: "llm.invoke --provider embedded --prompt x", timeout_ms: 500, on_error: "continue" },
    { id: "t", run: "echo went on" },
  ]);
  assert.deepEqual((await runToolRequest({ filePath, ctx: limited })).output, ["went on\n"]);
  assert.deepEqual(ends, ["the step has ended"]);
  const controller = new AbortController();
  const aborted = withAdapter((call) => (controller.abort(new Error("the client is gone")), wait(call)));
  assert.equal(await error({ pipeline: "llm.invoke --provider embedded --prompt x", ctx: { ...aborted, signal: controller.signal } }), "the client is gone");
  assert.equal(ends[1], "the client is gone");
});

test("questions of commands wait in the store, in pipelines and files", async () => {
  const calls = [];
  const order = async ({ input, ctx }) => {
    const items = await itemsOf(input);
    calls.push(items);
    const { n } = await ctx.requestInput({ prompt: "How many?", responseSchema: { type: "object", required: ["n"] } });
    const { sure } = await ctx.requestInput({ prompt: `${n}?`, responseSchema: { type: "object", required: ["sure"] } });
    return { output: [...items, n, sure] };
  };
  const ctx = withCommands({ order, double });
  const filePath = write(ctx, "flow.lobster", [{ id: "n", run: "echo '[1]'" }, { id: "o", pipeline: "order", stdin: "$n.json" }, { id: "t", run: "cat", stdin: "$o.json" }]);
  for (const request of [{ pipeline: "exec --json=true echo [1] | order" }, { filePath }]) {
    calls.length = 0;
    let asked = await runToolRequest({ ...request, ctx });
    assert.deepEqual([asked.status, asked.requiresInput?.prompt], ["needs_input", "How many?"], JSON.stringify(asked));
    asked = await resumeToolRequest({ token: asked.requiresInput.resumeToken, response: { n: 5 }, ctx });
    assert.equal(asked.requiresInput?.prompt, "5?", JSON.stringify(asked));
    const done = await resumeToolRequest({ token: asked.requiresInput.resumeToken, response: { sure: true }, ctx });
    assert.deepEqual(done.output, [1, 5, true], JSON.stringify(done));
    assert.deepEqual(calls, [[1], [1], [1]]);
  }
});

test("what a function gave is on record: another process answers, replays and says what it cannot call", async () => {
  let calls = 0;
  const ctx = withCommands({ double: (call) => ((calls += 1), double(call)) }, withAdapter(() => ((calls += 1), answered("once"))));
  const lobster = (...words) => {
    const done = spawnSync(binary, words, { cwd: ctx.cwd, env: { ...process.env, ...ctx.env }, encoding: "utf8" });
    return { ...done, text: done.stdout + done.stderr };
  };
  const steps = (last) => [
    { id: "d", pipeline: "double", stdin: [4] },
    { id: "l", pipeline: "llm.invoke --provider embedded --prompt x" },
    { id: "g", approval: "go?" },
    last,
  ];
  const ask = async (name, last) => {
    const asked = await runToolRequest({ filePath: write(ctx, name, steps(last)), ctx });
    assert.equal(asked.status, "needs_approval", JSON.stringify(asked));
    return asked.requiresApproval.resumeToken;
  };
  const done = lobster("resume", "--token", await ask("record.lobster", { id: "t", run: "echo $d.json $l.json.output.text" }), "--approve", "yes");
  assert.deepEqual(JSON.parse(done.stdout).output, ["8 once\n"], done.text);
  assert.equal(calls, 2);
  const failed = lobster("resume", "--token", await ask("beyond.lobster", { id: "t", pipeline: "double", stdin: [5] }), "--approve", "yes");
  assert.match(failed.text, /the command double is a function of the program that began this run/);
  const [run] = JSON.parse(lobster("runs", "--json").stdout);
  const replayed = lobster("replay", String(run.id ?? run.run));
  assert.doesNotMatch(replayed.text, /Unknown command/);
});

test("a call that hands something over is not retried, one of a model is", async () => {
  const attempts = [];
  const failing = (name) => async () => {
    attempts.push(name);
    throw new Error("no answer");
  };
  const told = async ({ ctx }) => {
    attempts.push("told");
    ctx.onNonRetryableSideEffect();
    throw new Error("no answer");
  };
  const ctx = withCommands({ "openclaw.invoke": failing("invoke"), own: failing("own"), told });
  for (const [pipeline, wanted] of [["openclaw.invoke --tool t --action a", ["invoke"]], ["own", ["own", "own"]], ["told", ["told"]]]) {
    attempts.length = 0;
    const filePath = write(ctx, "retry.lobster", [{ id: "s", pipeline, retry: { max: 2, delay_ms: 1 } }]);
    assert.equal(await error({ filePath, ctx }), "no answer");
    assert.deepEqual(attempts, wanted);
  }
});

test("what a command shows is what the program's own show", async () => {
  const ctx = withCommands({
    shows: async ({ input, ctx }) => {
      ctx.render.json(await itemsOf(input));
      return { output: [], rendered: true };
    },
    says: async ({ ctx }) => (ctx.stdout.write("plain\n"), { output: [] }),
  });
  const own = await runToolRequest({ pipeline: "exec --json=true echo [1,2] | json", ctx });
  assert.deepEqual((await runToolRequest({ pipeline: "exec --json=true echo [1,2] | shows", ctx })).output, own.output);
  assert.equal((await runToolRequest({ pipeline: "says", ctx })).ok, true);
});
