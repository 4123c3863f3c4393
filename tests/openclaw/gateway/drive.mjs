// Real OpenClaw gateways run our program behind their Lobster tool; a client
// calls the tool over the gateway's own HTTP endpoint, which needs no model.
// node drive.mjs LOBSTER cli/npm NODE_MODULES
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { promisify } from "node:util";

const [lobster, ours, modules] = process.argv.slice(2).map((word) => path.resolve(word));
const TOKEN = "the-gateway's-secret";
const TICKING = `(setsid sh -c 'trap "" TERM HUP; while :; do echo tick >> log; sleep 0.05; done' < /dev/null > /dev/null 2>&1 &)`;
const pause = (ms) => new Promise((done) => setTimeout(done, ms));

/** A gateway of this version in a home of its own. */
async function start(which) {
  const home = mkdtempSync(path.join(tmpdir(), "lobster-gateway-"));
  const work = path.join(home, "work");
  const bin = path.join(home, "bin");
  const packageRoot = path.join(modules, which);
  const { version } = JSON.parse(readFileSync(path.join(packageRoot, "package.json"), "utf8"));
  const port = await freePort();
  for (const dir of [work, bin, path.join(home, ".openclaw")]) mkdirSync(dir, { recursive: true });
  symlinkSync(lobster, path.join(bin, "lobster"));
  if (which === "embedded") stage(path.join(home, ".openclaw/plugin-runtime-deps"), packageRoot, version);
  const config = {
    gateway: { mode: "local", port, bind: "loopback", auth: { mode: "token", token: TOKEN }, controlUi: { enabled: false } },
    tools: { alsoAllow: ["lobster"] },
    plugins: { allow: ["lobster"], entries: { lobster: { enabled: true } }, slots: { memory: "none" } },
    discovery: { mdns: { mode: "off" } },
    update: { checkOnStart: false },
    logging: { file: path.join(home, "log") },
  };
  writeFileSync(path.join(home, ".openclaw/openclaw.json"), JSON.stringify(config));
  const gateway = spawn(process.execPath, [path.join(packageRoot, "openclaw.mjs"), "gateway", "run"], {
    cwd: work,
    env: {
      PATH: `${bin}:${path.dirname(process.execPath)}:/usr/local/bin:/usr/bin:/bin`,
      HOME: home,
      LOBSTER_STATE_DIR: path.join(home, "state"),
      OPENCLAW_SKIP_CHANNELS: "1",
      GIVEN: "the gateway's environment",
    },
    stdio: ["ignore", "pipe", "pipe"],
    detached: true,
  });
  let said = "";
  for (const stream of [gateway.stdout, gateway.stderr]) stream.on("data", (text) => (said += text));
  const url = `http://127.0.0.1:${port}`;
  for (let waited = 0; ; waited += 200) {
    assert.ok(gateway.exitCode === null && waited < 90_000, `the gateway does not come up:\n${said}`);
    if (await fetch(`${url}/tools/invoke`).then(() => true, () => false)) break;
    await pause(200);
  }
  const invoke = async (args, token = TOKEN) => {
    const reply = await fetch(`${url}/tools/invoke`, {
      method: "POST",
      headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
      signal: AbortSignal.timeout(90_000),
      body: JSON.stringify({ tool: "lobster", args }),
    });
    return { status: reply.status, ...(await reply.json()) };
  };
  /** The envelope of a call that succeeds, which is the text of its answer, too. */
  const call = async (args) => {
    const reply = await invoke(args);
    assert.equal(reply.status, 200, `${JSON.stringify(reply)}\n${said.slice(-2000)}`);
    assert.deepEqual(JSON.parse(reply.result.content[0].text), reply.result.details);
    return reply.result.details;
  };
  /** The reason of a call that fails, which the gateway tells its log only. */
  const failure = async (args) => {
    const before = said.length;
    const reply = await invoke(args);
    assert.deepEqual([reply.status, reply.error?.type], [500, "tool_error"], JSON.stringify(reply));
    for (let waited = 0; waited < 3000 && !said.slice(before).includes("tool execution failed"); waited += 50) await pause(50);
    return said.slice(before);
  };
  return { gateway, home, work, url, version, invoke, call, failure };
}

/**
 * Puts what this version of the gateway would fetch for its plugins where it
 * stages it: our package under the version that it asks for, and the rest as installed.
 */
function stage(base, packageRoot, version) {
  const hash = createHash("sha256").update(packageRoot).digest("hex").slice(0, 12);
  const staged = path.join(base, `openclaw-${version}-${hash}`, "node_modules");
  const manifest = (dir) => JSON.parse(readFileSync(path.join(dir, "package.json"), "utf8"));
  const plugins = path.join(packageRoot, "dist/extensions");
  for (const plugin of readdirSync(plugins).filter((name) => existsSync(path.join(plugins, name, "package.json")))) {
    for (const [name, wanted] of Object.entries(manifest(path.join(plugins, plugin)).dependencies ?? {})) {
      const target = path.join(staged, name);
      if (existsSync(target)) continue;
      mkdirSync(path.dirname(target), { recursive: true });
      if (name === "@clawdbot/lobster") {
        cpSync(ours, target, { recursive: true });
        writeFileSync(path.join(target, "package.json"), JSON.stringify({ ...manifest(ours), name, version: wanted }));
        continue;
      }
      const places = [path.join(packageRoot, "node_modules", name), path.join(modules, name)];
      const installed = places.find((place) => existsSync(place));
      if (installed) symlinkSync(installed, target);
    }
  }
}

async function freePort() {
  const server = createServer().listen(0, "127.0.0.1");
  await new Promise((done) => server.once("listening", done));
  const { port } = server.address();
  await new Promise((done) => server.close(done));
  return port;
}

/** Whether what wrote the file has stopped. */
async function settled(file) {
  const size = () => (existsSync(file) ? readFileSync(file).length : 0);
  for (let tries = 0; tries < 20; tries++) {
    const before = size();
    await pause(400);
    if (before > 0 && size() === before) return true;
  }
  return false;
}

async function drive(which, words) {
  const { gateway, home, work, url, version, invoke, call, failure } = await start(which);
  try {
    assert.equal((await invoke({ action: "run", pipeline: "exec echo hi" }, "wrong")).status, 401);

    writeFileSync(path.join(work, "data.json"), '[1,{"a":2}]');
    const read = await call({ action: "run", pipeline: "exec --json --shell 'cat data.json'" });
    assert.deepEqual([read.status, read.output], ["ok", [1, { a: 2 }]]);

    const guarded = { action: "run", pipeline: "exec --shell 'echo once >> once.txt; echo it' | approve --prompt 'Proceed?' | exec --shell 'cat >> sent.txt; echo sent'" };
    const asked = await call(guarded);
    assert.deepEqual([asked.status, asked.requiresApproval.prompt, asked.requiresApproval.items], ["needs_approval", "Proceed?", ["it"]]);
    assert.ok(!existsSync(path.join(work, "sent.txt")), "nothing runs before the yes");
    const resume = { action: "resume", token: asked.requiresApproval.resumeToken, approve: true };
    const done = await call(resume);
    assert.deepEqual([done.status, done.output], ["ok", ["sent"]]);
    assert.match(await failure(resume), /not found/, "a token is good for once");
    assert.equal(readFileSync(path.join(work, "once.txt"), "utf8"), "once\n");

    const refused = await call(guarded);
    assert.equal((await call({ action: "resume", token: refused.requiresApproval.resumeToken, approve: false })).status, "cancelled");

    mkdirSync(path.join(work, "flows"));
    writeFileSync(
      path.join(work, "flows/flow.lobster"),
      'args: { who: { default: nobody } }\nsteps:\n  - id: say\n    run: echo "$LOBSTER_ARG_WHO with $GIVEN"\n' +
        "  - id: ask\n    approval: Send?\n    stdin: $say.stdout\n  - id: send\n    run: cat\n    stdin: $say.stdout\n    when: $ask.approved\n",
    );
    const flow = await call({ action: "run", pipeline: "flow.lobster", argsJson: '{"who":"somebody"}', cwd: "flows" });
    const sent = await call({ action: "resume", token: flow.requiresApproval.resumeToken, approve: true, cwd: "flows" });
    assert.deepEqual(sent.output, ["somebody with the gateway's environment\n"]);

    assert.match(await failure({ action: "run", pipeline: "exec --shell 'echo gone wrong >&2; exit 3'" }), /gone wrong/);
    assert.match(await failure({ action: "run", pipeline: "no.such.command" }), /Unknown command: no\.such\.command/);

    const slow = { action: "run", pipeline: `exec --shell ${JSON.stringify(`${TICKING}; sleep 60`)}`, timeoutMs: 1500 };
    assert.match(await failure(slow), new RegExp(words.timeout));
    assert.ok(await settled(path.join(work, "log")), "what timed out is gone");

    // The other way round: a pipeline of ours calls the gateway, whose tool runs us.
    const nested = 'openclaw.invoke --tool lobster --action run --args-json \'{"pipeline":"exec echo nested"}\'';
    const { stdout } = await promisify(execFile)(lobster, ["run", "--mode", "tool", nested], {
      cwd: work,
      env: { PATH: process.env.PATH, HOME: home, LOBSTER_STATE_DIR: path.join(home, "other"), OPENCLAW_URL: url, OPENCLAW_TOKEN: TOKEN },
    });
    assert.deepEqual(JSON.parse(stdout).output[0].details.output, ["nested"]);

    if (words.endsWithHost) {
      rmSync(path.join(work, "log"));
      const lost = invoke({ action: "run", pipeline: slow.pipeline, timeoutMs: 60_000 }).catch(() => "lost");
      for (let waited = 0; !existsSync(path.join(work, "log")); waited += 50) {
        assert.ok(waited < 10_000, "the step has begun");
        await pause(50);
      }
      process.kill(-gateway.pid, "SIGKILL");
      assert.equal(await lost, "lost");
      assert.ok(await settled(path.join(work, "log")), "what ran for the killed gateway is gone");
    }
    console.log(`${which} (openclaw ${version}): ran, asked, resumed once, refused, timed out; openclaw.invoke calls it`);
  } finally {
    if (gateway.exitCode === null && gateway.signalCode === null) {
      process.kill(-gateway.pid, "SIGTERM");
      await Promise.race([new Promise((ended) => gateway.once("exit", ended)), pause(10_000)]);
      if (gateway.exitCode === null && gateway.signalCode === null) process.kill(-gateway.pid, "SIGKILL");
    }
    rmSync(home, { recursive: true, force: true, maxRetries: 5 });
  }
}

await drive("subprocess", { timeout: "lobster subprocess timed out" });
await drive("embedded", { timeout: "lobster runtime timed out", endsWithHost: true });
process.exit(0);
