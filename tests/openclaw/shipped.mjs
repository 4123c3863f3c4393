// The incumbent's own tests, as its npm package ships them, over our package:
//
//   node shipped.mjs UNPACKED_PACKAGE
//
// A copy of the package keeps its tests; every module of the entry points that they
// import is ours. What fails is listed below with its reason, and the list is exact.

import { spawnSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const ours = fileURLToPath(new URL("../../cli/npm/", import.meta.url));

/** Modules of the incumbent, and what of ours stands in their place. */
const MODULES = {
  "src/core/index.js": ["core.js"],
  "src/core/tool_runtime.js": ["core.js"],
  "src/parser.js": ["pipeline_text.js"],
  "src/resume.js": ["token.js"],
  "src/token.js": ["token.js"],
  "src/runtime.js": ["run_pipeline.js"],
  "src/sdk/index.js": ["sdk/index.js"],
  "src/sdk/Lobster.js": ["sdk/lobster.js"],
  "src/sdk/primitives/approve.js": ["sdk/stages.js"],
  "src/sdk/primitives/diff.js": ["sdk/stages.js"],
  "src/sdk/primitives/exec.js": ["sdk/stages.js"],
  "src/sdk/primitives/state.js": ["sdk/stages.js"],
  "src/recipes/github/index.js": ["recipes/github.js"],
  "src/commands/registry.js": ["registry.js"],
  "src/workflows/file.js": ["workflow_file.js"],
};

/** Test files of the entry points. */
const FILES = [
  "approve_preview",
  "email_triage",
  "exec_stdin",
  "request_input",
  "tool_mode",
  "tool_envelope_version",
  "workflow_args_env",
  "bin_smoke",
  "clawd_invoke",
  "clawd_invoke_legacy",
  "command_arguments",
  "commands_list",
  "core_tool_runtime",
  "dedupe",
  "diff_last",
  "github_pr_view",
  "group_by",
  "map",
  "openclaw_invoke_alias",
  "parser",
  "pick",
  "sdk_exec",
  "sdk_lobster",
  "sort",
  "template",
  "where",
];

const INSIDE = "looks inside the incumbent's tokens and state files: ours only name a run of the store";
const STORE = "wants an empty state directory: ours has the store, and no snapshot in it";
const ASKS = "wants a question to be refused: ours keeps what came before it, so the command may ask";

/** What fails, and why it may. */
const FAILS = {
  "prMonitor cancels its child without saving a snapshot": STORE,
  "prMonitorNotify cancels its child without saving a snapshot": STORE,
  "ctx.requestInput suspends and resumes the same tool command with state-backed metadata": INSIDE,
  "ctx.requestInput carries bounded prior responses across multiple suspensions": INSIDE,
  "ctx.requestInput does not leak consumed suspended state into later requests": INSIDE,
  "malformed same-stage requestInput state is rejected before resume execution": INSIDE,
  "ctx.requestInput rejects suspension after an earlier stage wrote stdout": ASKS,
  "ctx.requestInput rejects non-terminal lazy output suspension": ASKS,
  "ctx.requestInput restores compact suspended state before lazy input is read on resume": INSIDE,
  "ctx.requestInput suspends from terminal lazy output": INSIDE,
  "built CLI ask restores subject state across processes": INSIDE,
  "sdk Lobster.resume replays command-level requestInput with a fresh instance": INSIDE,
  "sdk Lobster.resume rejects command-level requestInput tampering and metadata drift": INSIDE,
  "sdk Lobster stores chained requestInput history outside the resume token": INSIDE,
  "gog.gmail.search | email.triage works end-to-end (mock gog)": "its fixture is not in the npm package; it fails over the incumbent, too",
};

/** So many tests there are at least; fewer means that they were not read. */
const FEWEST = 120;

/** A `gh` that says when it was started and how it ended: the fixture that the tests copy is not in the package. */
const GH = `#!/usr/bin/env node
import { writeFileSync } from "node:fs";
const tell = (name, text) => process.env[name] && writeFileSync(process.env[name], text);
process.on("SIGTERM", () => { tell("MOCK_GH_TERMINATED_FILE", "yes"); process.exit(143); });
tell("MOCK_GH_STARTED_FILE", String(process.pid));
setTimeout(() => { tell("MOCK_GH_COMPLETED_FILE", "yes"); console.log("{}"); }, 5000);
`;

const source = path.resolve(process.argv[2] ?? "");
if (!existsSync(path.join(source, "dist/test"))) {
  console.error("usage: node shipped.mjs UNPACKED_PACKAGE (of npm's @clawdbot/lobster)");
  process.exit(2);
}
const stage = mkdtempSync(path.join(tmpdir(), "lobster-shipped-"));
try {
  cpSync(source, stage, { recursive: true });
  for (const [module, parts] of Object.entries(MODULES)) {
    const lines = parts.map((part) => `export * from ${JSON.stringify(pathToFileURL(path.join(ours, "src", part)).href)};\n`);
    mkdirSync(path.dirname(path.join(stage, "dist", module)), { recursive: true });
    writeFileSync(path.join(stage, "dist", module), lines.join(""));
  }
  mkdirSync(path.join(stage, "test/fixtures"), { recursive: true });
  writeFileSync(path.join(stage, "test/fixtures/mock-gh-cancellation.mjs"), GH);
  for (const name of ["lobster", "openclaw.invoke", "clawd.invoke"]) {
    writeFileSync(path.join(stage, "bin", `${name}.js`), `import ${JSON.stringify(pathToFileURL(path.join(ours, "bin", `${name}.js`)).href)};\n`);
  }
  process.exitCode = judge(run(stage));
} finally {
  rmSync(stage, { recursive: true, force: true });
}

/** The name of each test, with whether it passed. */
function run(dir) {
  const files = FILES.map((name) => `dist/test/${name}.test.js`).filter((file) => existsSync(path.join(dir, file)));
  const env = { ...process.env, LOBSTER_STATE_DIR: path.join(dir, "state"), HOME: dir };
  const done = spawnSync(process.execPath, ["--test", "--test-reporter=tap", ...files], {
    cwd: dir,
    env,
    encoding: "utf8",
    maxBuffer: 256 * 1024 * 1024,
    timeout: 600_000,
  });
  const found = [...done.stdout.matchAll(/^\s*(not ok|ok) \d+ - (.*?)( # SKIP.*)?$/gm)];
  if (process.env.SHIPPED_TAP) console.log(done.stdout);
  return new Map(found.filter(([, , , skipped]) => !skipped).map(([, how, name]) => [name.replaceAll("\\#", "#"), how === "ok"]));
}

/** 0 when exactly what is listed fails. */
function judge(results) {
  const failed = [...results].filter(([, passed]) => !passed).map(([name]) => name);
  const unexpected = failed.filter((name) => !(name in FAILS));
  const cured = Object.keys(FAILS).filter((name) => !failed.includes(name));
  for (const name of unexpected) console.log(`fails: ${name}`);
  for (const name of cured) console.log(`listed, but does not fail (any more): ${name}`);
  const passed = [...results.values()].filter(Boolean).length;
  console.log(`${results.size} tests of the incumbent: ${passed} pass over our package, ${results.size - passed} fail, ${failed.length - unexpected.length} of these listed`);
  return unexpected.length === 0 && cured.length === 0 && results.size >= FEWEST ? 0 : 1;
}
