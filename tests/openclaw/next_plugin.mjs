// The calls that OpenClaw's newer Lobster plugin makes, against any core of the package:
//
//   node next_plugin.mjs CORE      (CORE is a module with the exports of @clawdbot/lobster/core)
//
// Prints each call with its result as JSON, without what differs from run to run. The plugin is not
// on npm, so its convention is written down here in our own words: on every call it passes a registry
// that wraps `llm.invoke` and `llm_task.invoke`, and an adapter of its own called `embedded`.

import { createHash } from "node:crypto";
import { mkdtempSync, realpathSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { Readable, Writable } from "node:stream";
import { pathToFileURL } from "node:url";

const core = await import(pathToFileURL(path.resolve(process.argv[2])).href);
const dir = realpathSync(mkdtempSync(path.join(tmpdir(), "lobster-next-")));
process.chdir(dir);
for (const name of Object.keys(process.env)) {
  if (/^(LOBSTER_LLM|OPENCLAW|CLAWD)/.test(name)) delete process.env[name];
}
Object.assign(process.env, { LOBSTER_STATE_DIR: path.join(dir, "state"), LOBSTER_CACHE_DIR: path.join(dir, "cache"), HOME: dir });

/** What the adapter was asked, in order. */
let asked = [];
/** How many of its calls were answered at the same time, at most. */
let most = 0;
let now = 0;

const embedded = {
  source: "openclaw-embedded",
  async invoke({ env, args, payload, signal }) {
    const named = args?.provider?.trim().toLowerCase() || env?.LOBSTER_LLM_PROVIDER?.trim().toLowerCase();
    if (named !== "embedded") throw new Error("the embedded provider is opt-in");
    asked.push(payload.retryContext ? [payload.prompt, payload.retryContext.attempt] : payload.prompt);
    most = Math.max(most, (now += 1));
    try {
      if (payload.prompt === "throws") throw new Error("the agent has no model");
      if (payload.prompt === "refuses") return { ok: false, error: { message: "over quota" } };
      if (payload.prompt === "nonsense") return "yes";
      if (payload.prompt === "cut") return { ok: true, result: { output: { text: "Ship it 🚀🚀".slice(0, 9), data: null, format: "text" } } };
      if (payload.prompt === "for ever") await new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
      // Long enough for the other branch to ask as well.
      if (payload.prompt.startsWith("branch")) for (let i = 0; most < 2 && i < 200; i += 1) await new Promise((resolve) => setTimeout(resolve, 25));
      const data = { n: payload.retryContext ? 2 : 1 };
      return { ok: true, result: { model: payload.model ?? "m", output: { text: JSON.stringify(data), data, format: "json" }, usage: { inputTokens: 0, outputTokens: payload.prompt === "cost" ? 1_000_000 : 4, totalTokens: 7 } } };
    } finally {
      now -= 1;
    }
  },
};

/** Which stages of models ran. */
let stages = [];

function wrapped(registry) {
  const get = (name) => {
    const command = registry.get(name);
    if (!command || !/^llm(_task)?\.invoke$/.test(name)) return command;
    return {
      ...command,
      async run({ input, args, ctx }) {
        const provider = (args.provider ?? ctx.env.LOBSTER_LLM_PROVIDER ?? "").trim().toLowerCase();
        const own = { ...args, provider: "embedded", refresh: true, "disable-cache": true, "state-key": "" };
        const call = provider === "embedded" ? { input, args: own, ctx } : { input, args, ctx: { ...ctx, llmAdapters: undefined } };
        const result = await command.run(call);
        const items = [];
        for await (const item of result.output ?? []) items.push(item);
        stages.push([name, provider || "none"]);
        return { ...result, output: Readable.from(items) };
      },
    };
  };
  return { get, list: () => registry.list() };
}

function sink(max) {
  let bytes = 0;
  return new Writable({ write: (chunk, _encoding, done) => done((bytes += Buffer.byteLength(String(chunk))) > max ? new Error("too much") : undefined) });
}

/** Where the plugin keeps whose authority a checkpoint carries: by the token, or by the short id. */
const provenance = new Map();
const keyOf = ({ token, approvalId }) => createHash("sha256").update(token ? `token:${token}` : `approval:${approvalId}`).digest("hex");

/** The plugin's `lobster` tool. */
async function tool({ action, pipeline, argsJson, token, approvalId, approve, responseJson, cancel, signal, timeoutMs = 20_000, maxStdoutBytes = 512_000 }) {
  const controller = new AbortController();
  signal?.addEventListener("abort", () => controller.abort(signal.reason), { once: true });
  const ctx = {
    cwd: dir,
    env: { ...process.env },
    registry: wrapped(core.createDefaultRegistry()),
    mode: "tool",
    stdin: Readable.from([]),
    stdout: sink(maxStdoutBytes),
    stderr: sink(maxStdoutBytes),
    signal: controller.signal,
    llmAdapters: { embedded },
  };
  const call = async () => {
    if (action === "run") {
      const file = workflowFile(pipeline);
      return file ? core.runToolRequest({ filePath: file, args: argsJson && JSON.parse(argsJson), ctx }) : core.runToolRequest({ pipeline, ctx });
    }
    if (token && approvalId) throw new Error("resume accepts either token or approvalId, not both");
    if ([approve, responseJson, cancel].filter((given) => given !== undefined).length !== 1) throw new Error("resume requires exactly one decision");
    if (!cancel && !provenance.has(keyOf({ token, approvalId }))) throw new Error("this checkpoint has no provenance");
    const decision = cancel ? { cancel } : responseJson === undefined ? { approved: approve } : { response: JSON.parse(responseJson) };
    return core.resumeToolRequest({ ...(token ? { token } : { approvalId }), ...decision, ctx });
  };
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => {
      const error = new Error("lobster runtime timed out");
      controller.abort(error);
      reject(error);
    }, timeoutMs);
  });
  const envelope = await Promise.race([call(), late]).finally(() => clearTimeout(timer));
  if (!envelope.ok) throw new Error(envelope.error.message);
  const question = envelope.requiresApproval ?? envelope.requiresInput;
  if (question) {
    const { kind, stateKey } = JSON.parse(Buffer.from(question.resumeToken, "base64url").toString());
    if (!stateKey) throw new Error(`the token names no state (${kind})`);
    provenance.set(keyOf({ token: question.resumeToken }), stages);
    if (question.approvalId) provenance.set(keyOf(question), stages);
  }
  if (envelope.requiresInput && envelope.requiresInput.type !== "input_request") throw new Error("no input request");
  if (Buffer.byteLength(JSON.stringify(envelope, null, 2)) > maxStdoutBytes) throw new Error("lobster runtime result exceeded maxStdoutBytes");
  return envelope;
}

function workflowFile(pipeline) {
  if (pipeline.includes("|") || !/\.(lobster|ya?ml|json)$/i.test(pipeline)) return undefined;
  const file = path.resolve(dir, pipeline);
  try {
    return statSync(file).isFile() ? file : undefined;
  } catch (error) {
    // Words with spaces may end like a file and be a pipeline.
    if (/\s/.test(pipeline)) return undefined;
    throw error;
  }
}

/** Without what differs from run to run. */
function plain(value) {
  return JSON.parse(
    JSON.stringify(value, (key, inner) => {
      // An item's time is a part of its hash.
      if (key === "artifactHashes") return inner.length;
      if (["resumeToken", "approvalId", "createdAt", "cacheKey"].includes(key)) return inner === undefined ? undefined : `<${key}>`;
      return typeof inner === "string" ? inner.replaceAll(dir, "<dir>").toWellFormed() : inner;
    }),
  );
}

const results = [];
let last;

async function call(name, params) {
  asked = [];
  stages = [];
  most = 0;
  let result;
  try {
    last = await tool({ action: params.pipeline ? "run" : "resume", ...params });
    result = plain(last);
  } catch (error) {
    last = undefined;
    result = { error: plain(error.message) };
  }
  results.push({ name, result, ...(asked.length ? { asked: asked.sort() } : {}), ...(stages.length ? { stages: stages.sort() } : {}), ...(most > 1 ? { most } : {}) });
}

const token = () => last?.requiresApproval?.resumeToken ?? last?.requiresInput?.resumeToken;
const id = () => last?.requiresApproval?.approvalId;
const file = (name, steps) => writeFileSync(name, JSON.stringify(steps.steps ? steps : { steps }));
const llm = (prompt, more = "") => `llm.invoke --provider embedded --prompt '${prompt}'${more}`;

file("hello.lobster", { args: { who: { default: "x" } }, steps: [{ id: "s", run: "echo hello ${who}" }] });
file("gate.lobster", [{ id: "s", run: "echo one" }, { id: "g", approval: "go?" }, { id: "t", run: "echo two", when: "$g.approved" }]);
file("input.lobster", [
  { id: "q", input: { prompt: "n?", responseSchema: { type: "object", properties: { n: { type: "number" } }, required: ["n"] } } },
  { id: "t", run: "echo $q.response.n" },
]);
file("llm.lobster", [{ id: "l", pipeline: llm("hi") }, { id: "t", run: "echo $l.json.output.data.n" }]);

// The twenty calls of the convention.
await call("a program", { pipeline: "exec echo hi" });
await call("items", { pipeline: "exec --json --shell 'echo [1,2,3]' | head --n 2" });
await call("an approval", { pipeline: "exec --json --shell 'echo [1,2]' | approve --prompt ok?" });
await call("its yes, by token", { token: token(), approve: true });
await call("an approval again", { pipeline: "exec echo a | approve --prompt ok?" });
await call("its no, by id", { approvalId: id(), approve: false });
await call("a question", { pipeline: "exec echo a | ask --prompt w" });
await call("its answer", { token: token(), responseJson: '{"decision":"approve"}' });
await call("a file with arguments", { pipeline: "hello.lobster", argsJson: '{"who":"w"}' });
await call("a file that asks for approval", { pipeline: "gate.lobster" });
await call("its yes, by id", { approvalId: id(), approve: true });
await call("a file that asks for input", { pipeline: "input.lobster" });
const input = token();
await call("an answer that does not fit", { token: input, responseJson: '{"n":"x"}' });
await call("an answer that fits", { token: input, responseJson: '{"n":4}' });
await call("a file that asks for input again", { pipeline: "input.lobster" });
await call("called off", { token: token(), cancel: true });
await call("the adapter in a pipeline", { pipeline: llm("hi") });
await call("the adapter in a file", { pipeline: "llm.lobster" });
await call("the time is up", { pipeline: "exec sleep 30", timeoutMs: 300 });
await call("the commands", { pipeline: "commands.list | where name=llm.invoke | pick name" });

// What the plugin itself refuses, and what its signal ends.
await call("a token and an id", { token: "t", approvalId: "i", approve: true });
await call("two decisions", { token: "t", approve: true, cancel: true });
await call("a token that this plugin never saw", { token: "t", approve: true });
await call("a file that is not there", { pipeline: "no.lobster" });
await call("words that end like a file", { pipeline: "exec echo a.json" });
await call("a result that is too large", { pipeline: "exec --shell 'head -c 3000 /dev/zero | tr \"\\0\" x'", maxStdoutBytes: 2048 });
await call("the request is aborted", { pipeline: "exec sleep 30", signal: AbortSignal.timeout(300) });
await call("the request is aborted while the adapter works", { pipeline: llm("for ever"), signal: AbortSignal.timeout(700) });

// Functions at every depth.
file("child.lobster", [{ id: "l", pipeline: llm("child") }]);
file("parent.lobster", [{ id: "c", workflow: "child.lobster" }, { id: "t", run: "echo $c.json.output.data.n" }]);
file("loop.lobster", [{ id: "all", run: "echo '[1,2,3]'" }, { id: "loop", for_each: "$all.json", steps: [{ id: "l", pipeline: llm("loop") }] }, { id: "t", run: "echo done" }]);
file("parallel.lobster", [
  { id: "p", parallel: { wait: "all", branches: [{ id: "a", pipeline: llm("branch a") }, { id: "b", pipeline: llm("branch b") }] } },
  { id: "t", run: "echo $a.json.output.data.n $b.json.output.data.n" },
]);
file("around.lobster", [
  { id: "before", pipeline: llm("before") },
  { id: "g", approval: "go?" },
  { id: "after", pipeline: llm("after"), when: "$g.approved" },
  { id: "t", run: "echo $before.json.output.data.n $after.json.output.data.n" },
]);
file("env.lobster", { env: { LOBSTER_LLM_PROVIDER: "embedded" }, steps: [{ id: "l", pipeline: "llm.invoke --prompt env" }, { id: "t", run: "echo $l.json.source" }] });
file("step_env.lobster", [{ id: "l", env: { LOBSTER_LLM_PROVIDER: "embedded" }, pipeline: "llm.invoke --prompt 'step env'" }, { id: "t", run: "echo $l.json.source" }]);
file("retry.lobster", [{ id: "l", pipeline: llm("throws"), retry: { max: 2, delay: 1 } }]);
file("continue.lobster", [{ id: "l", pipeline: llm("throws"), on_error: "continue" }, { id: "t", run: "echo went on" }]);
file("cost.lobster", { cost_limit: { max_usd: 0.5, action: "stop" }, steps: [{ id: "l", pipeline: llm("cost", " --model gpt-4o") }, { id: "t", run: "echo $l.json.usage.totalTokens" }] });
const wanted = JSON.stringify({ type: "object", properties: { n: { const: 2 } }, required: ["n"] });

await call("in a sub-workflow", { pipeline: "parent.lobster" });
await call("in a loop", { pipeline: "loop.lobster" });
await call("in two branches at once", { pipeline: "parallel.lobster" });
await call("before an approval", { pipeline: "around.lobster" });
await call("and after it", { token: token(), approve: true });
await call("chosen by the file", { pipeline: "env.lobster" });
await call("chosen by the step", { pipeline: "step_env.lobster" });
await call("before a question in a pipeline", { pipeline: `${llm("piped")} | approve --prompt ok? | ${llm("again")}` });
await call("and after that", { token: token(), approve: true });
await call("an answer that must fit a schema", { pipeline: llm("schema", ` --output-schema '${wanted}'`) });
await call("the older name", { pipeline: "llm_task.invoke --provider embedded --prompt old" });
await call("a limit of cost that it passes", { pipeline: "cost.lobster" });
await call("items as artifacts", { pipeline: `exec --json --shell 'echo [1,2]' | ${llm("artifacts")} | template --text '{{artifactHashes}}'` });

// What fails.
await call("it throws", { pipeline: llm("throws") });
await call("it refuses", { pipeline: llm("refuses") });
await call("it answers nonsense", { pipeline: llm("nonsense") });
await call("it cuts an emoji in two", { pipeline: llm("cut") });
await call("it throws, with retries", { pipeline: "retry.lobster" });
await call("it throws, and the file goes on", { pipeline: "continue.lobster" });
await call("a provider that nobody has", { pipeline: "llm.invoke --provider other --prompt x" });
await call("no provider", { pipeline: "llm.invoke --prompt x" });
await call("the gateway, which is not there", { pipeline: "llm.invoke --provider openclaw --prompt x" });
await call("a command that nobody has", { pipeline: "no.such" });

process.stdout.write(`${JSON.stringify(results, null, 1)}\n`);
process.chdir("/");
rmSync(dir, { recursive: true, force: true });
process.exit(0);
