// The SDK over the real program: LOBSTER_BIN, or lobster on PATH.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, test } from "node:test";

import { Lobster, approve, diffLast, exec, shell, state, stateGet, stateSet } from "lobster-runtime";
import { findBinary } from "lobster-runtime/core";

const binary = findBinary();
const root = mkdtempSync(path.join(tmpdir(), "lobster-sdk-test-"));
after(() => rmSync(root, { recursive: true, force: true }));

/** Options of a `Lobster` with a state of its own. */
function home() {
  const dir = mkdtempSync(path.join(root, "home-"));
  return { env: { ...process.env, LOBSTER_BIN: binary, HOME: dir }, stateDir: path.join(dir, "state") };
}

/** The questions that wait. */
function gates({ env, stateDir }) {
  const done = spawnSync(binary, ["approvals", "--json"], { env: { ...env, LOBSTER_STATE_DIR: stateDir }, encoding: "utf8" });
  assert.equal(done.status, 0, done.stderr);
  return JSON.parse(done.stdout);
}

async function output(pipeline, input) {
  const result = await pipeline.run(input);
  assert.equal(result.status, "ok", JSON.stringify(result));
  return result.output;
}

const ODD = ["", " ", "a b", "'", '"', "\\", "$HOME", "${x}", "$step.json", "`id`", "| head", "--json", "-", "é\n", "{}"];

test("a command's words, its text and its failures are what they are", async () => {
  const options = home();
  const sdk = () => new Lobster(options);
  // In the SDK's dialect a backslash in quotes makes any character literal.
  const words = ODD.map((word) => `"${word.replace(/[\\"]/g, "\\$&")}"`).join(" ");
  assert.deepEqual(await output(sdk().pipe(exec(`node -p "JSON.stringify(process.argv.slice(1))" -- ${words}`))), ODD);
  for (const text of ["", "a", "a\n", "\n\na\n\n", "[1]\n", "null", "é"]) {
    const command = exec('node -e "process.stdout.write(process.env.TEXT)"', { json: false });
    assert.deepEqual(await output(new Lobster({ ...options, env: { ...options.env, TEXT: text } }).pipe(command)), [text]);
  }
  const [large] = await output(sdk().pipe(exec(`node -e "process.stdout.write('x'.repeat(3e5))"`, { json: false })));
  assert.equal(large.length, 300_000);
  assert.deepEqual(await output(sdk().pipe(shell("echo '[1,2]' | cat"))), [1, 2]);
  const failure = async (stage) => (await sdk().pipe(stage).run()).error?.message;
  assert.equal(await failure(shell("echo no >&2; exit 7")), "echo no >&2; exit 7 exited with code 7: no");
  assert.equal(await failure(exec("lobster-no-such-program x")), "Failed to execute lobster-no-such-program: spawn lobster-no-such-program ENOENT");
  assert.match(await failure(exec("echo nope")), /^exec output is not valid JSON: nope/);
  assert.equal(await failure(exec("")), "exec requires a command");
});

test("the environment of a stage is its own", async () => {
  const options = home();
  process.env.LOBSTER_TEST_OUTSIDE = "seen";
  try {
    const { LOBSTER_TEST_OUTSIDE: _, ...env } = { ...options.env, OWN: "1" };
    const seen = await output(new Lobster({ ...options, env }).pipe(shell('echo "[\\"$OWN\\",\\"$LOBSTER_TEST_OUTSIDE\\"]"')));
    assert.deepEqual(seen, ["1", ""]);
  } finally {
    delete process.env.LOBSTER_TEST_OUTSIDE;
  }
});

test("state keeps values as they are, under any key", async () => {
  const options = home();
  const key = 'a "$x.json" ${y} | head';
  const values = [null, 0, "", ODD, [], [1], [[1]], { "$a.json": "${b}", c: [{ d: null }] }, "text"];
  for (const value of values) {
    await output(new Lobster(options).pipe(() => [value]).pipe(stateSet(key)));
    assert.deepEqual(await output(new Lobster(options).pipe(state.get(key))), [value], JSON.stringify(value));
  }
  assert.deepEqual(await output(new Lobster(options).pipe(stateGet("none"))), [null]);
  assert.throws(() => stateGet(""), /requires a key/);
});

test("diffLast says what changed", async () => {
  const options = home();
  const diff = async (value, changesOnly) => (await output(new Lobster(options).pipe(() => [value]).pipe(diffLast("pr", { changesOnly }))))[0];
  assert.deepEqual(await diff({ n: 1 }), { kind: "diff.last", key: "pr", changed: true, before: null, after: { n: 1 } });
  assert.deepEqual(await diff({ n: 1 }, true), { kind: "diff.last", key: "pr", changed: false, suppressed: true });
  assert.deepEqual((await diff({ n: 2 }, true)).before, { n: 1 });
});

test("an approval waits in the program's store, and its token works once", async () => {
  const options = home();
  let ran = 0;
  const make = (preview) =>
    new Lobster(options)
      .pipe(() => ODD)
      .pipe(approve({ prompt: "Send ${x} $y.json?", preview }))
      .pipe((items) => ((ran += 1), items));
  for (const preview of [true, false]) {
    const asked = await make(preview).run();
    assert.equal(asked.status, "needs_approval", JSON.stringify(asked));
    assert.deepEqual(asked.requiresApproval.items, preview ? ODD : []);
    const [waiting] = gates(options);
    assert.equal(waiting.id, asked.requiresApproval.approvalId);
    assert.equal(waiting.request.prompt, "Send ${x} $y.json?");
    assert.deepEqual(waiting.request.items, preview ? ODD : []);
    const token = asked.requiresApproval.resumeToken;
    await assert.rejects(make(preview).resume(token, { response: {} }), /expects approved=true\|false/);
    await assert.rejects(make(preview).resume(token, {}), /requires approved, response, or cancel/);
    await assert.rejects(make(preview).resume(token, { approved: true, cancel: true }), /only one of/);
    const done = await make(preview).resume(token, { approved: true });
    assert.deepEqual(done.output, ODD, "the items pass on, shown or not");
    await assert.rejects(make(preview).resume(token, { approved: true }), /state not found/);
  }
  assert.equal(ran, 2);
  for (const answer of [{ approved: false }, { cancel: true }]) {
    const asked = await make(true).run();
    assert.equal((await make(true).resume(asked.requiresApproval.resumeToken, answer)).status, "cancelled");
  }
  assert.deepEqual([ran, gates(options)], [2, []]);
});

test("only the stages that asked go on", async () => {
  const options = home();
  let ran = false;
  const asked = await new Lobster(options).pipe(approve()).pipe(exec("echo 1")).run([1]);
  const others = new Lobster(options).pipe(approve()).pipe(() => (ran = true));
  await assert.rejects(others.resume(asked.requiresApproval.resumeToken, { approved: true }), /approve \| function now, approve \| exec then/);
  assert.equal(ran, false);
});

test("tokens that are not the program's are refused", async () => {
  const sdk = new Lobster(home()).pipe(approve());
  const token = (payload) => Buffer.from(JSON.stringify(payload)).toString("base64url");
  const foreign = token({ protocolVersion: 1, v: 1, stageIndex: 0, resumeAtIndex: 1, items: ["forged"], prompt: "?" });
  await assert.rejects(sdk.resume(foreign, { approved: true }), /made by the SDK of @clawdbot\/lobster.*carries its own state/);
  await assert.rejects(sdk.resume("x", { approved: true }), /Invalid token/);
  const made_up = token({ protocolVersion: 1, v: 1, kind: "workflow-file", stateKey: "workflow_resume_00" });
  await assert.rejects(sdk.resume(made_up, { approved: true }), /not found/);
});

test("commands ask in the middle of their work, over fresh instances, and an unfit answer leaves the question", async () => {
  const options = home();
  const responseSchema = { type: "object", properties: { colour: { enum: ["red", "blue"] } }, required: ["colour"] };
  const make = () =>
    new Lobster(options).pipe({
      type: "paint",
      async run({ input, ctx }) {
        const items = [];
        for await (const item of input) items.push(item);
        const first = await ctx.requestInput({ prompt: "First", responseSchema, subject: "$a ${b}" });
        const second = await ctx.requestInput({ prompt: `After ${first.colour}`, responseSchema });
        return { output: [...items, first.colour, second.colour] };
      },
    });
  const first = await make().run([{ n: 1 }, "x"]);
  assert.deepEqual([first.status, first.requiresInput?.prompt, first.requiresInput?.subject], ["needs_input", "First", "$a ${b}"]);
  const answer = (asked, response) => make().resume(asked.requiresInput.resumeToken, { response });
  await assert.rejects(answer(first, { colour: "green" }), /does not match schema at \/colour/);
  const second = await answer(first, { colour: "red" });
  assert.equal(second.requiresInput?.prompt, "After red", JSON.stringify(second));
  assert.deepEqual((await answer(second, { colour: "blue" })).output, [{ n: 1 }, "x", "red", "blue"]);
});

test("an aborted pipeline ends with its reason, and nothing is left behind", async () => {
  const before = readdirSync(tmpdir()).filter((name) => name.startsWith("lobster-sdk-") && !root.endsWith(name));
  const controller = new AbortController();
  const pending = new Lobster({ ...home(), signal: controller.signal }).pipe(shell("sleep 30", { json: false })).run();
  setTimeout(() => controller.abort(new Error("enough")), 300);
  const result = await pending;
  assert.deepEqual([result.ok, result.error?.message], [false, "enough"]);
  const now = readdirSync(tmpdir()).filter((name) => name.startsWith("lobster-sdk-") && !root.endsWith(name));
  assert.deepEqual(now.filter((name) => !before.includes(name)), []);
});
