// Runs many command lines of the incumbent in one process: batch.mjs PACKAGE CASES RESULTS
// A line of CASES is {dir, env, argv, answers}; a line of RESULTS is what each call wrote and its exit code.
import fs from "node:fs";
import { Readable } from "node:stream";
import { pathToFileURL } from "node:url";

const [, , packageDir, cases, results] = process.argv;
const { runCli } = await import(pathToFileURL(`${packageDir}/dist/src/cli.js`).href);
const write = process.stdout.write.bind(process.stdout);

async function call(argv) {
  let out = "";
  const capture = (chunk, encoding, done) => {
    out += typeof chunk === "string" ? chunk : Buffer.from(chunk).toString();
    const after = typeof encoding === "function" ? encoding : done;
    after?.();
    return true;
  };
  Object.defineProperty(process, "stdin", { value: Readable.from([]), configurable: true });
  process.stdout.write = capture;
  process.stderr.write = (chunk, encoding, done) => ((typeof encoding === "function" ? encoding : done)?.(), true);
  process.exitCode = undefined;
  try {
    await runCli(argv);
  } catch (error) {
    process.exitCode = 70;
    out += `thrown: ${error?.message}`;
  } finally {
    process.stdout.write = write;
  }
  return { out, exit: process.exitCode ?? 0 };
}

function tokenOf(out) {
  try {
    const envelope = JSON.parse(out);
    return (envelope.requiresApproval ?? envelope.requiresInput)?.resumeToken;
  } catch {
    return undefined;
  }
}

for (const line of fs.readFileSync(cases, "utf8").split("\n").filter(Boolean)) {
  const { dir, env, argv, answers } = JSON.parse(line);
  for (const name of Object.keys(process.env)) delete process.env[name];
  Object.assign(process.env, env);
  process.chdir(dir);
  const calls = [await call(argv)];
  for (const answer of answers) {
    const token = tokenOf(calls.at(-1).out);
    if (!token) break;
    calls.push(await call(["resume", "--token", token, ...answer]));
  }
  process.chdir("/");
  fs.appendFileSync(results, `${JSON.stringify(calls)}\n`);
}
process.exit(0);
