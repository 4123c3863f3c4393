// The entry points over the real program: LOBSTER_BIN, or lobster on PATH.

import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { Writable } from "node:stream";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";

import { findBinary, resumeToolRequest, runToolRequest } from "lobster-runtime/core";

const binary = findBinary();
const root = mkdtempSync(path.join(tmpdir(), "lobster-npm-"));
after(() => rmSync(root, { recursive: true, force: true }));

/** A directory and a state of its own. */
function home() {
  const dir = mkdtempSync(path.join(root, "home-"));
  const env = { LOBSTER_BIN: binary, LOBSTER_STATE_DIR: path.join(dir, "state"), HOME: dir };
  return { dir, env, ctx: { cwd: dir, env, mode: "tool" } };
}

/** Waits until something is so. */
async function until(condition, what) {
  const begun = Date.now();
  while (!condition()) {
    assert.ok(Date.now() - begun < 20_000, `waited too long for ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

test("a pipeline answers with the incumbent's envelope", async () => {
  const { ctx } = home();
  assert.deepEqual(await runToolRequest({ pipeline: "exec --json --shell 'echo [1,2]'", ctx }), {
    protocolVersion: 1,
    ok: true,
    status: "ok",
    output: [1, 2],
    requiresApproval: null,
    requiresInput: null,
  });
});

test("an approval waits, is answered by token and by id, and works once", async () => {
  const { ctx, dir } = home();
  const pipeline = "exec --shell 'echo once >> once.txt; cat once.txt' | approve --prompt 'Proceed?' | exec --stdin raw --shell 'cat > out.txt; echo done'";
  for (const by of ["token", "approvalId"]) {
    const asked = await runToolRequest({ pipeline, ctx });
    assert.equal(asked.status, "needs_approval");
    assert.equal(asked.requiresApproval.prompt, "Proceed?");
    assert.ok(!existsSync(path.join(dir, "out.txt")));
    const handle = by === "token" ? { token: asked.requiresApproval.resumeToken } : { approvalId: asked.requiresApproval.approvalId };
    const done = await resumeToolRequest({ ...handle, approved: true, ctx });
    assert.deepEqual(done.output, ["done"], JSON.stringify(done));
    rmSync(path.join(dir, "out.txt"));
    const again = await resumeToolRequest({ ...handle, approved: true, ctx });
    assert.equal(again.ok, false);
  }
  assert.equal(readFileSync(path.join(dir, "once.txt"), "utf8"), "once\nonce\n");
});

test("refusing, calling off, and saying nothing", async () => {
  const { ctx } = home();
  const ask = async () => (await runToolRequest({ pipeline: "exec echo x | approve --prompt ok?", ctx })).requiresApproval.resumeToken;
  assert.equal((await resumeToolRequest({ token: await ask(), approved: false, ctx })).status, "cancelled");
  assert.equal((await resumeToolRequest({ token: await ask(), cancel: true, ctx })).status, "cancelled");
  const token = await ask();
  for (const wrong of [{}, { approved: "yes" }, { approved: true, response: {} }]) {
    const answer = await resumeToolRequest({ token, ...wrong, ctx });
    assert.equal(answer.error?.type, "parse_error", JSON.stringify(answer));
  }
  assert.equal((await resumeToolRequest({ token, approved: true, ctx })).status, "ok", "the question still stands");
  assert.equal((await resumeToolRequest({ approved: true, ctx })).error.message, "resume requires token or approvalId");
});

test("a file runs with arguments of any size, and asks for input", async () => {
  const { ctx, dir } = home();
  writeFileSync(
    path.join(dir, "flow.lobster"),
    "args: { text: { default: x } }\nsteps:\n  - id: say\n    run: wc -c\n    stdin: ${text}\n  - id: ask\n    input: { prompt: Which?, responseSchema: { type: object, required: [n] } }\n  - id: end\n    run: cat\n    stdin: $ask.response\n",
  );
  const asked = await runToolRequest({ filePath: "flow.lobster", args: { text: "y".repeat(300_000) }, ctx });
  assert.equal(asked.status, "needs_input", JSON.stringify(asked));
  assert.equal(asked.requiresInput.subject, 300_000);
  const token = asked.requiresInput.resumeToken;
  const unfit = await resumeToolRequest({ token, response: { m: 1 }, ctx });
  assert.equal(unfit.ok, false);
  const done = await resumeToolRequest({ token, response: { n: "z".repeat(200_000) }, ctx });
  assert.equal(done.output[0].n.length, 200_000);
});

test("requests that are wrong are told so", async () => {
  const { ctx, dir } = home();
  writeFileSync(path.join(dir, "notes.txt"), "");
  const message = async (request, type = "parse_error") => {
    const answer = await runToolRequest({ ...request, ctx: { ...ctx, ...request.ctx } });
    assert.equal(answer.error?.type, type, JSON.stringify(answer));
    return answer.error.message;
  };
  assert.equal(await message({}), "run requires either pipeline or filePath");
  assert.equal(await message({ pipeline: "a", filePath: "b" }), "run accepts either pipeline or filePath, not both");
  assert.match(await message({ filePath: "no.lobster" }), /ENOENT/);
  assert.equal(await message({ filePath: "notes.txt" }), "Workflow file must end in .lobster, .yaml, .yml, or .json");
  assert.match(await message({ pipeline: "exec echo 'open" }), /quote/i);
  assert.match(await message({ pipeline: "x\0y" }), /NUL/);
  assert.match(await message({ pipeline: "exec true", ctx: { registry: {} } }, "runtime_error"), /ctx\.registry must have a function called get/);
  assert.match(await message({ pipeline: "exec true", ctx: { mode: "human" } }), /ctx\.mode/);
  assert.match(await message({ pipeline: "exec true", ctx: { limits: { timeoutMs: 0 } } }), /limits\.timeoutMs/);
  assert.match(await message({ pipeline: "exec true", ctx: { cwd: path.join(dir, "gone") } }, "runtime_error"), /gone/);
  assert.match(await message({ pipeline: "exec true", ctx: { env: { LOBSTER_BIN: "/no/such" } } }, "runtime_error"), /LOBSTER_BIN/);
  assert.match(await message({ pipeline: "no.such.command" }, "runtime_error"), /Unknown command/);
});

test("pipeline text is never read as an option or as a file", async () => {
  const { ctx, dir } = home();
  writeFileSync(path.join(dir, "flow.lobster"), "steps: [{ id: a, run: touch hit }]\n");
  for (const pipeline of ["--help", "-h", "--file=flow.lobster", "--mode human", "flow.lobster", "-", "--dry-run"]) {
    const answer = await runToolRequest({ pipeline, ctx });
    assert.equal(answer.ok, false, `${pipeline}: ${JSON.stringify(answer)}`);
  }
  assert.ok(!existsSync(path.join(dir, "hit")));
  const long = await runToolRequest({ pipeline: `exec --json --shell 'echo [1]' | where text!=${"x".repeat(200_000)}`, ctx });
  assert.equal(long.ok, true, JSON.stringify(long).slice(0, 500));
});

test("directory, variables and remarks", async () => {
  const { ctx, dir } = home();
  const heard = [];
  const stderr = new Writable({ write: (chunk, _encoding, done) => (heard.push(String(chunk)), done()) });
  const env = { ...ctx.env, GIVEN: "by ctx" };
  const answer = await runToolRequest({ pipeline: "exec --nonsense --shell 'pwd; echo $GIVEN'", ctx: { ...ctx, env, stderr } });
  assert.deepEqual(answer.output.join("\n").split("\n").slice(0, 2), [dir, "by ctx"]);
  assert.match(heard.join(""), /nonsense/);
});

test("a sink that refuses ends the call", async () => {
  const { ctx } = home();
  const stderr = new Writable({ write: (_chunk, _encoding, done) => done(new Error("lobster stderr exceeded maxStdoutBytes")) });
  const answer = await runToolRequest({ pipeline: "exec --nonsense --shell 'sleep 30'", ctx: { ...ctx, stderr } });
  assert.equal(answer.error?.message, "lobster stderr exceeded maxStdoutBytes");
});

test("an abort ends everything that was started", async () => {
  for (const name of ["signal", "forceTerminationSignal"]) {
    const { ctx, dir } = home();
    const controller = new AbortController();
    const log = path.join(dir, "log");
    const pipeline = "exec --shell '(setsid sh -c \"while :; do echo tick >> log; sleep 0.05; done\" &) ; sleep 60'";
    const call = runToolRequest({ pipeline, ctx: { ...ctx, [name]: controller.signal } });
    await until(() => existsSync(log), "the first tick");
    controller.abort(new Error("lobster runtime timed out"));
    const answer = await call;
    assert.deepEqual(answer.error, { type: "runtime_error", message: "lobster runtime timed out" });
    const size = readFileSync(log).length;
    await new Promise((resolve) => setTimeout(resolve, 300));
    assert.equal(readFileSync(log).length, size, "nothing goes on");
  }
  const aborted = await runToolRequest({ pipeline: "exec true", ctx: { ...home().ctx, signal: AbortSignal.abort() } });
  assert.equal(aborted.error.type, "runtime_error");
});

test("what runs ends with the host, however that ends", { skip: process.platform !== "linux" }, async () => {
  const { dir, env } = home();
  const log = path.join(dir, "log");
  writeFileSync(path.join(dir, "tick.sh"), "while :; do echo tick >> log; sleep 0.05; done\n");
  const code = `import { runToolRequest } from ${JSON.stringify(fileURLToPath(new URL("../src/core.js", import.meta.url)))};
    await runToolRequest({ pipeline: "exec --shell 'sh tick.sh'" });`;
  const host = spawn(process.execPath, ["--input-type=module", "-e", code], { cwd: dir, env: { ...process.env, ...env } });
  await until(() => existsSync(log), "the first tick");
  host.kill("SIGKILL");
  const size = () => readFileSync(log).length;
  let before = -1;
  await until(() => {
    const still = size() === before;
    before = size();
    return still && spawnSync("sleep", ["0.3"]).status === 0 && size() === before;
  }, "the end of the ticks");
});

test("limits", async () => {
  const { ctx } = home();
  const slow = await runToolRequest({ pipeline: "exec sleep 30", ctx: { ...ctx, limits: { timeoutMs: 300 } } });
  assert.equal(slow.error?.message, "lobster timed out after 300 ms");
  const big = await runToolRequest({ pipeline: "exec --shell 'head -c 100000 /dev/zero | tr \"\\0\" x'", ctx: { ...ctx, limits: { maxStdoutBytes: 4096 } } });
  assert.match(big.error?.message, /larger than 4096 bytes/);
  const output = await runToolRequest({ pipeline: "exec --shell 'head -c 20000000 /dev/zero | tr \"\\0\" x'", ctx });
  assert.equal(output.output[0].length, 20_000_000);
});

test("calls do not disturb each other", async () => {
  const { ctx } = home();
  const calls = Array.from({ length: 12 }, (_, n) => runToolRequest({ pipeline: `exec --json --shell 'echo ${n}'`, ctx }));
  assert.deepEqual((await Promise.all(calls)).map((answer) => answer.output[0]), Array.from({ length: 12 }, (_, n) => n));
});

test("the program is found, and shims are not taken for it", () => {
  const { dir } = home();
  const bin = path.join(dir, "bin");
  mkdirSync(bin);
  const other = path.join(dir, "other");
  mkdirSync(other);
  symlinkSync(fileURLToPath(new URL("../bin/lobster.js", import.meta.url)), path.join(bin, "lobster"));
  writeFileSync(path.join(other, "lobster"), "#!/usr/bin/env node\n");
  chmodSync(path.join(other, "lobster"), 0o755);
  assert.throws(() => findBinary({ PATH: `${bin}:${other}:${dir}/none` }), /was not found: set LOBSTER_BIN/);
  const real = path.join(dir, "real");
  mkdirSync(real);
  symlinkSync(binary, path.join(real, "lobster"));
  assert.equal(findBinary({ PATH: `${bin}:${other}:${real}` }), path.join(real, "lobster"));
  assert.equal(findBinary({ LOBSTER_BIN: binary, PATH: "" }), binary);
  assert.throws(() => findBinary({ LOBSTER_BIN: dir }), /not an executable file/);
});

test("the platform package is the last resort", () => {
  const { dir } = home();
  const out = path.join(dir, "packages");
  const made = spawnSync(process.execPath, [fileURLToPath(new URL("../platform-package.js", import.meta.url)), binary, out]);
  assert.equal(made.status, 0, String(made.stderr));
  // Installed beside this package, as npm does it.
  const modules = path.join(dir, "node_modules");
  const name = `lobster-runtime-${process.platform}-${process.arch}`;
  mkdirSync(modules);
  symlinkSync(path.join(out, name), path.join(modules, name));
  const copy = path.join(modules, "lobster-runtime");
  spawnSync("cp", ["-r", fileURLToPath(new URL("..", import.meta.url)), copy]);
  const code = `import { findBinary } from ${JSON.stringify(path.join(copy, "src/binary.js"))}; console.log(findBinary({ PATH: "" }))`;
  const found = spawnSync(process.execPath, ["--input-type=module", "-e", code], { encoding: "utf8" });
  assert.match(found.stdout, new RegExp(`${name}/bin/lobster\\n$`), found.stderr);
});

test("bin shims hand over words, streams, exit codes and signals", async () => {
  const { env, dir } = home();
  const shim = (name) => fileURLToPath(new URL(`../bin/${name}.js`, import.meta.url));
  const run = (name, words) => spawnSync(process.execPath, [shim(name), ...words], { cwd: dir, env: { ...process.env, ...env }, encoding: "utf8" });
  const good = run("lobster", ["run", "--mode", "tool", "exec --json --shell 'echo [7]'"]);
  assert.deepEqual([good.status, JSON.parse(good.stdout).output], [0, [7]]);
  assert.equal(run("lobster", ["run", "--mode", "tool", "exec 'open"]).status, 2);
  const invoke = run("openclaw.invoke", ["--tool", "t", "--action", "a"]);
  assert.notEqual(invoke.status, 0);
  assert.match(invoke.stderr, /openclaw\.invoke/);
  const child = spawn(process.execPath, [shim("lobster"), "exec --shell 'touch started; sleep 60'"], { cwd: dir, env: { ...process.env, ...env } });
  await until(() => existsSync(path.join(dir, "started")), "the step");
  child.kill("SIGTERM");
  const code = await new Promise((resolve) => child.once("exit", (code) => resolve(code)));
  assert.equal(code, 143);
});
