// OpenClaw's own Lobster plugin drives our program: the version that starts it
// as a subprocess, and the one that calls it in process through our package.
//
//   OPENCLAW_PLUGINS=<what fetch.sh made> LOBSTER_BIN=<program> node --test tests/openclaw

import assert from "node:assert/strict";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, describe, test } from "node:test";

const plugins = process.env.OPENCLAW_PLUGINS;
const binary = process.env.LOBSTER_BIN && path.resolve(process.env.LOBSTER_BIN);
assert.ok(plugins && binary, "OPENCLAW_PLUGINS and LOBSTER_BIN must be set");

const root = mkdtempSync(path.join(tmpdir(), "lobster-openclaw-"));
const start = process.cwd();
after(() => {
  process.chdir(start);
  rmSync(root, { recursive: true, force: true });
});

// What a gateway has: the program under its name on PATH, its own directory, its own state.
const bin = path.join(root, "bin");
mkdirSync(bin);
symlinkSync(binary, path.join(bin, "lobster"));
process.env.PATH = `${bin}:/usr/local/bin:/usr/bin:/bin`;
delete process.env.LOBSTER_BIN;

/** A fresh gateway directory; the plugin takes the process's. */
function gateway() {
  const dir = mkdtempSync(path.join(root, "gateway-"));
  process.env.LOBSTER_STATE_DIR = path.join(dir, "state");
  process.chdir(dir);
  return dir;
}

/** The tool that the plugin registers, as the gateway gets it. */
async function tool(which, runtime = {}) {
  const { default: plugin } = await import(path.join(path.resolve(start, plugins), which, "plugin.js"));
  let factory;
  const api = { registerTool: (made) => (factory = made), runtime: { version: "test", ...runtime }, logger: { debug() {} } };
  (plugin.register ?? plugin)(api);
  assert.equal(factory({ sandboxed: true }), null);
  const made = factory({ sandboxed: false, sessionKey: "session" });
  return (params) => made.execute("call", params);
}

async function settled(file) {
  const size = () => (existsSync(file) ? readFileSync(file).length : 0);
  await new Promise((resolve) => setTimeout(resolve, 150));
  const before = size();
  await new Promise((resolve) => setTimeout(resolve, 400));
  return size() === before && before > 0;
}

const TICKING = "(setsid sh -c 'trap \\\"\\\" TERM HUP; while :; do echo tick >> log; sleep 0.05; done' < /dev/null > /dev/null 2>&1 &)";

for (const [which, words] of [
  ["subprocess", { timeout: "lobster subprocess timed out" }],
  ["embedded", { timeout: "lobster runtime timed out" }],
]) {
  describe(`openclaw's plugin, ${which}`, () => {
    test("a pipeline's envelope reaches the agent", async () => {
      writeFileSync(path.join(gateway(), "data.json"), '[1,{"a":2}]');
      const execute = await tool(which);
      const answer = await execute({ action: "run", pipeline: "exec --json --shell 'cat data.json'" });
      assert.equal(answer.details.status, "ok");
      assert.deepEqual(answer.details.output, [1, { a: 2 }]);
      assert.deepEqual(JSON.parse(answer.content[0].text), answer.details);
    });

    test("nothing runs before the yes, and nothing twice", async () => {
      const dir = gateway();
      const execute = await tool(which);
      writeFileSync(path.join(dir, "edited.txt"), "edited\n");
      const shown = await execute({ action: "run", pipeline: "exec --shell 'cat edited.txt'" });
      assert.deepEqual(shown.details.output, ["edited"]);
      const asked = await execute({ action: "run", pipeline: "exec --shell 'echo once >> once.txt; cat edited.txt' | approve --prompt 'Proceed?'" });
      assert.equal(asked.details.status, "needs_approval");
      const { prompt, items, resumeToken, approvalId } = asked.details.requiresApproval;
      assert.deepEqual([prompt, items, typeof resumeToken, typeof approvalId], ["Proceed?", ["edited"], "string", "string"]);
      const done = await execute({ action: "resume", token: resumeToken, approve: true });
      assert.deepEqual([done.details.status, done.details.output], ["ok", ["edited"]]);
      assert.equal(readFileSync(path.join(dir, "once.txt"), "utf8"), "once\n");
      await assert.rejects(execute({ action: "resume", token: resumeToken, approve: true }), /not found/);
    });

    test("a no ends it", async () => {
      const dir = gateway();
      const execute = await tool(which);
      const asked = await execute({ action: "run", pipeline: "exec echo x | approve --prompt ok? | exec --shell 'touch ran'" });
      const done = await execute({ action: "resume", token: asked.details.requiresApproval.resumeToken, approve: false });
      assert.equal(done.details.status, "cancelled");
      assert.ok(!existsSync(path.join(dir, "ran")));
    });

    test("a workflow file with arguments, in a directory below the gateway's", async () => {
      const dir = gateway();
      mkdirSync(path.join(dir, "flows"));
      writeFileSync(
        path.join(dir, "flows/flow.lobster"),
        "args: { who: { default: nobody } }\nsteps:\n  - id: say\n    run: echo \"$LOBSTER_ARG_WHO at $(basename \"$PWD\") with $GIVEN\"\n  - id: ask\n    approval: Send?\n    stdin: $say.stdout\n  - id: send\n    run: cat\n    stdin: $say.stdout\n    when: $ask.approved\n",
      );
      process.env.GIVEN = "the gateway's environment";
      const execute = await tool(which);
      const asked = await execute({ action: "run", pipeline: "flow.lobster", argsJson: '{"who":"somebody"}', cwd: "flows" });
      assert.equal(asked.details.status, "needs_approval", JSON.stringify(asked.details));
      const done = await execute({ action: "resume", token: asked.details.requiresApproval.resumeToken, approve: true, cwd: "flows" });
      assert.deepEqual(done.details.output, ["somebody at flows with the gateway's environment\n"]);
      await assert.rejects(execute({ action: "run", pipeline: "flow.lobster", cwd: ".." }), /within the gateway/);
    });

    test("failures reach the agent as messages", async () => {
      gateway();
      const execute = await tool(which);
      await assert.rejects(execute({ action: "run", pipeline: "exec --shell 'echo gone wrong >&2; exit 3'" }), /gone wrong/);
      await assert.rejects(execute({ action: "run", pipeline: "no.such.command" }), /Unknown command: no\.such\.command/);
      await assert.rejects(execute({ action: "run", pipeline: "exec 'open" }), /quote/i);
      await assert.rejects(execute({ action: "resume", token: "forged", approve: true }), /[Ii]nvalid token/);
    });

    test("remarks on stderr do not spoil the envelope", async () => {
      gateway();
      const execute = await tool(which);
      const answer = await execute({ action: "run", pipeline: "exec --nonsense --shell 'echo to stderr >&2; echo fine'" });
      assert.deepEqual(answer.details.output, ["fine"]);
    });

    test("a large answer arrives whole, every time", async () => {
      gateway();
      const execute = await tool(which);
      for (const size of [1, 65_535, 65_536, 65_537, 200_000, 400_000, 400_000, 400_000]) {
        const answer = await execute({ action: "run", pipeline: `exec --shell 'head -c ${size} /dev/zero | tr \"\\\\0\" x'` });
        assert.equal(answer.details.output[0].length, size);
      }
    });

    test("a timeout leaves nothing behind", async () => {
      const dir = gateway();
      const execute = await tool(which);
      const call = execute({ action: "run", pipeline: `exec --shell "${TICKING}; sleep 60"`, timeoutMs: 1500 });
      await assert.rejects(call, new RegExp(words.timeout));
      assert.ok(await settled(path.join(dir, "log")), "the step's processes are gone");
    });
  });
}

describe("openclaw's plugin, subprocess", () => {
  test("too much output is a kill that leaves nothing behind", async () => {
    const dir = gateway();
    const execute = await tool("subprocess");
    const pipeline = `exec --shell "${TICKING}; sleep 0.3; head -c 3000000 /dev/zero | tr '\\\\0' x"`;
    await assert.rejects(execute({ action: "run", pipeline, maxStdoutBytes: 4096 }), /exceeded maxStdoutBytes/);
    assert.ok(await settled(path.join(dir, "log")));
  });

  test("a question for input passes through", async () => {
    gateway();
    const execute = await tool("subprocess");
    const asked = await execute({ action: "run", pipeline: "ask --prompt 'Which?' --schema '{\"type\":\"object\"}'" });
    assert.deepEqual([asked.details.status, asked.details.requiresInput.prompt], ["needs_input", "Which?"]);
  });

  test("an inspector of the gateway does not reach the program", async () => {
    gateway();
    process.env.NODE_OPTIONS = "--inspect=0";
    try {
      const answer = await (await tool("subprocess"))({ action: "run", pipeline: "exec --shell 'echo [$NODE_OPTIONS]'" });
      assert.deepEqual(answer.details.output, ["[]"]);
    } finally {
      delete process.env.NODE_OPTIONS;
    }
  });
});

describe("openclaw's plugin, embedded", () => {
  test("an approval is answered by its short id", async () => {
    gateway();
    const execute = await tool("embedded");
    const asked = await execute({ action: "run", pipeline: "exec echo x | approve --prompt ok?" });
    const done = await execute({ action: "resume", approvalId: asked.details.requiresApproval.approvalId, approve: true });
    assert.deepEqual(done.details.output, ["x"]);
  });

  test("a managed flow waits at the approval and finishes after it", async () => {
    gateway();
    const calls = [];
    const flow = { flowId: "f", revision: 1 };
    const note = (name) => (params) => (calls.push([name, params]), { applied: true, flow });
    const bound = { createManaged: (params) => (calls.push(["create", params]), flow), setWaiting: note("wait"), finish: note("finish"), fail: note("fail"), resume: note("resume") };
    const execute = await tool("embedded", { taskFlow: { fromToolContext: () => bound } });
    const asked = await execute({ action: "run", pipeline: "exec echo x | approve --prompt ok?", flowControllerId: "c", flowGoal: "g" });
    const { approvalId, prompt } = asked.details.requiresApproval;
    const [, waiting] = calls.find(([name]) => name === "wait");
    assert.deepEqual([waiting.waitJson.kind, waiting.waitJson.prompt, waiting.waitJson.approvalId], ["lobster_approval", prompt, approvalId]);
    await execute({ action: "resume", approvalId, approve: true, flowId: "f", flowExpectedRevision: 1 });
    assert.deepEqual(calls.map(([name]) => name), ["create", "wait", "resume", "finish"]);
  });
});
