// The official TypeScript SDK's client drives `lobster mcp` as an agent host does.
// node sdk.mjs LOBSTER REGEX.WASM
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync, copyFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ElicitRequestSchema, ToolListChangedNotificationSchema } from "@modelcontextprotocol/sdk/types.js";

const lobster = process.argv[2];
const home = mkdtempSync(join(tmpdir(), "lobster-mcp-sdk-"));
const work = join(home, "work");
const env = { PATH: process.env.PATH, HOME: home, LOBSTER_STATE_DIR: join(home, "state") };
for (const dir of ["work", "work/flows", "work/steps"]) mkdirSync(join(home, dir));
copyFileSync(process.argv[3], join(work, "steps/regex.wasm"));
writeFileSync(
  join(work, "flows/send.lobster"),
  "description: Sends it.\nargs:\n  to: {type: string, required: true}\nsteps:\n" +
    "  - id: what\n    js: '\"to \" + args.to'\n  - id: ask\n    stdin: $what.json\n    approval: Send it?\n" +
    "  - id: done\n    js: '\"sent\"'\n",
);
writeFileSync(
  join(work, "flows/name.lobster"),
  "steps:\n  - id: ask\n    input:\n      prompt: Who?\n      responseSchema: {type: object, properties: {name: {type: string}}, required: [name]}\n" +
    "  - id: hello\n    js: '\"hello \" + steps.ask.name'\n",
);
const folders = ["--workflows", "flows", "--components", "steps"];

async function connect(transport, answer) {
  const client = new Client({ name: "sdk", version: "1" }, { capabilities: answer ? { elicitation: {} } : {} });
  if (answer) client.setRequestHandler(ElicitRequestSchema, async (request) => answer(request.params));
  await client.connect(transport);
  // The first script of a fresh home waits for its evaluator to be compiled.
  const call = client.callTool.bind(client);
  client.callTool = (params, schema, options) => call(params, schema, { timeout: 300_000, ...options });
  return client;
}

async function drive(open, to) {
  const asked = [];
  const client = await connect(await open([...folders, "--profile", "open"]), (params) => {
    asked.push(params.message);
    return { action: "accept", content: "name" in params.requestedSchema.properties ? { name: "Ann" } : { approve: true } };
  });
  let changed = 0;
  client.setNotificationHandler(ToolListChangedNotificationSchema, () => void changed++);

  const { tools } = await client.listTools();
  assert.deepEqual(tools.map((tool) => tool.name), ["name", "regex", "resume", "run", "runs", "send", "show"]);
  assert.equal(tools.find((tool) => tool.name === "regex").annotations.readOnlyHint, true);

  const found = await client.callTool({ name: "regex", arguments: { mode: "extract", pattern: "a+", input: ["caat"] } });
  assert.equal(found.structuredContent.ok, true, JSON.stringify(found));

  const progress = [];
  const sent = await client.callTool({ name: "send", arguments: { to } }, undefined, {
    onprogress: (step) => progress.push(step.progress),
  });
  assert.equal(sent.structuredContent.status, "ok", JSON.stringify(sent));
  assert.deepEqual(sent.structuredContent.output, ["sent"]);
  assert.ok(asked[0].includes("Send it?") && asked[0].includes(`to ${to}`), asked[0]);
  assert.ok(progress.length >= 2 && progress.every((value, at) => at === 0 || value > progress[at - 1]), `${progress}`);

  const named = await client.callTool({ name: "name", arguments: {} });
  assert.deepEqual(named.structuredContent.output, ["hello Ann"]);

  const stop = new AbortController();
  const log = join(work, "log");
  const slow = client.callTool(
    { name: "run", arguments: { pipeline: "exec --shell 'while :; do echo tick >> log; sleep 0.05; done'" } },
    undefined,
    { signal: stop.signal },
  );
  while (!existsSync(log)) await pause(20);
  stop.abort("enough");
  await assert.rejects(slow);
  await settled(log);
  const interrupted = (await client.callTool({ name: "runs", arguments: { status: "interrupted" } })).structuredContent;
  assert.ok(interrupted.runs.length >= 1, JSON.stringify(interrupted));
  rmSync(log);

  writeFileSync(join(work, "flows/late.lobster"), "steps:\n  - {id: a, js: '1'}\n");
  for (let waited = 0; !changed; waited += 50) {
    assert.ok(waited < 10000, "the list's change is told");
    await pause(50);
  }
  assert.ok((await client.listTools()).tools.some((tool) => tool.name === "late"));
  await client.close();
  rmSync(join(work, "flows/late.lobster"));

  const incumbent = await connect(await open([...folders, "--approvals", "token"]));
  await incumbent.listTools();
  const waiting = (await incumbent.callTool({ name: "send", arguments: { to: "bob" } })).structuredContent;
  assert.equal(waiting.status, "needs_approval");
  const done = await incumbent.callTool({
    name: "resume",
    arguments: { token: waiting.requiresApproval.resumeToken, approve: true },
  });
  assert.deepEqual(done.structuredContent.output, ["sent"]);
  await incumbent.close();
}

const pause = (ms) => new Promise((done) => setTimeout(done, ms));

async function settled(file) {
  for (let tries = 0; tries < 50; tries++) {
    const before = readFileSync(file, "utf8").length;
    await pause(300);
    if (readFileSync(file, "utf8").length === before) return;
  }
  assert.fail("what was cancelled still runs");
}

const servers = [];
const transports = {
  stdio: async (words) => new StdioClientTransport({ command: lobster, args: ["mcp", ...words], cwd: work, env }),
  http: async (words) => {
    const server = spawn(lobster, ["mcp", "--http", "127.0.0.1:0", "--no-token", ...words], { cwd: work, env });
    servers.push(server);
    const url = await new Promise((done, fail) => {
      let said = "";
      server.stderr.on("data", (text) => {
        said += text;
        const url = said.match(/http:\S+\/mcp\n/);
        if (url) done(url[0].trim());
      });
      server.on("exit", () => fail(new Error("the server has ended")));
    });
    return new StreamableHTTPClientTransport(new URL(url));
  },
};

try {
  for (const [name, open] of Object.entries(transports)) {
    await drive(open, name); // to another: pure steps that are known report nothing
    console.log(`${name}: listed, called, saw progress, asked, cancelled, heard of a change, resumed`);
  }
} finally {
  for (const server of servers) server.kill();
  rmSync(home, { recursive: true, force: true });
}
