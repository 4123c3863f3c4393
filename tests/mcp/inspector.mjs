// The official inspector, as a command, drives `lobster mcp` over both transports.
// node inspector.mjs LOBSTER REGEX.WASM
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { copyFileSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";

const [lobster, component] = process.argv.slice(2);
const packaged = createRequire(import.meta.url).resolve("@modelcontextprotocol/inspector/package.json");
const inspector = join(dirname(packaged), "clients/launcher/build/index.js");
const home = mkdtempSync(join(tmpdir(), "lobster-inspector-"));
const work = join(home, "work");
const TOKEN = "the-inspector's-token";
const env = { PATH: process.env.PATH, HOME: home, LOBSTER_STATE_DIR: join(home, "state") };
for (const dir of ["flows", "steps"]) mkdirSync(join(work, dir), { recursive: true });
copyFileSync(component, join(work, "steps/regex.wasm"));
writeFileSync(join(work, "note.txt"), "remember\n");
writeFileSync(
  join(work, "flows/send.lobster"),
  "description: Sends it.\nargs:\n  to: {type: string, required: true}\nsteps:\n" +
    "  - id: ask\n    approval: Send it?\n  - id: done\n    js: '\"sent to \" + args.to'\n",
);
const words = ["mcp", "--workflows", "flows", "--components", "steps"];

function run(program, args) {
  return new Promise((done) => {
    const child = spawn(program, args, { cwd: work, env, stdio: ["ignore", "pipe", "pipe"] });
    const said = { stdout: "", stderr: "" };
    for (const name of ["stdout", "stderr"]) child[name].on("data", (text) => (said[name] += text));
    child.on("close", (code) => done({ code, ...said }));
  });
}

/** A method of the inspector on a server, `how` it is reached given in its own words. */
const inspect = (how, method, more = []) =>
  run(process.execPath, [inspector, "--cli", ...how.before, "--format", "json", "--method", method, ...more, ...how.after]);

async function result(how, method, more) {
  const { code, stdout, stderr } = await inspect(how, method, more);
  assert.equal(code, 0, `${method}: exit ${code}\n${stdout}\n${stderr}`);
  return JSON.parse(stdout).result;
}

const call = (how, name, args) =>
  result(how, "tools/call", ["--tool-name", name, "--tool-args-json", JSON.stringify(args)]);

async function drive(how, to) {
  // --strict: a schema that a common client could not use is an error.
  const { tools } = await result(how, "tools/list", ["--strict"]);
  assert.deepEqual(tools.map((tool) => tool.name), ["regex", "resume", "run", "runs", "send", "show"]);
  for (const tool of tools) assert.match(tool._meta["lobster/digest"], /^blake3:[0-9a-f]{64}$/);
  const send = tools.find((tool) => tool.name === "send");
  assert.deepEqual(send.inputSchema.required, ["to"]);

  const found = await call(how, "regex", { mode: "extract", pattern: "a+", input: ["caat"] });
  assert.deepEqual([found.isError, found.structuredContent.output[0].match], [false, "aa"]);
  assert.deepEqual(JSON.parse(found.content[0].text), found.structuredContent);

  const read = await call(how, "run", { pipeline: "exec --shell 'cat note.txt'" });
  assert.deepEqual([read.structuredContent.status, read.structuredContent.output], ["ok", ["remember"]]);

  const asked = (await call(how, "send", { to })).structuredContent;
  assert.deepEqual([asked.status, asked.requiresApproval.prompt], ["needs_approval", "Send it?"]);
  assert.equal(asked.requiresApproval.resumeToken, undefined, "what answers an approval is not for the agent");
  const args = JSON.stringify({ approvalId: asked.requiresApproval.approvalId, approve: true });
  const own = await inspect(how, "tools/call", ["--tool-name", "resume", "--tool-args-json", args]);
  assert.ok(own.code !== 0 || JSON.parse(own.stdout).result.isError, "an agent does not approve its own run");
  assert.match(own.stdout + own.stderr, /approval_refused/);
}

let server;
try {
  const stdio = { before: ["--cwd", work, "-e", `LOBSTER_STATE_DIR=${env.LOBSTER_STATE_DIR}`], after: ["--", lobster, ...words] };
  await drive(stdio, "ann");
  console.log("stdio: listed, called, was asked, could not approve by itself");

  writeFileSync(join(home, "token"), TOKEN);
  server = spawn(lobster, [...words, "--http", "127.0.0.1:0", "--token-file", join(home, "token")], { cwd: work, env });
  const url = await new Promise((done, fail) => {
    let said = "";
    server.stderr.on("data", (text) => {
      said += text;
      const url = said.match(/http:\S+\/mcp\b/);
      if (url) done(url[0]);
    });
    server.on("exit", () => fail(new Error(`the server has ended: ${said}`)));
  });
  const http = (token) => ({
    before: ["--server-url", url, "--transport", "http", "--stored-auth-only", ...(token ? ["--header", `Authorization: Bearer ${token}`] : [])],
    after: [],
  });
  for (const token of ["", "another"]) {
    const refused = await inspect(http(token), "tools/list");
    assert.notEqual(refused.code, 0, refused.stdout);
    assert.match(refused.stdout + refused.stderr, /auth|401/i);
  }
  await drive(http(TOKEN), "bob");
  console.log("http: the same, with a bearer token, and not without it");
} finally {
  server?.kill();
  rmSync(home, { recursive: true, force: true });
}
