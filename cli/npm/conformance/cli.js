// The package's entry points behind the command line of the program, so that
// the recorded cases of the tool envelope can be played through the package.
// Words that have no counterpart in the package are refused.

import { stat } from "node:fs/promises";
import path from "node:path";

import { resumeToolRequest, runToolRequest } from "../src/core.js";

const UNMAPPED = 97;

const ctx = { stderr: process.stderr };

class Unmapped extends Error {}

const [command, ...words] = process.argv.slice(2);
let envelope;
try {
  if (command === "run") envelope = await run(words);
  else if (command === "resume") envelope = await resume(words);
  else throw new Unmapped(`command ${command}`);
} catch (error) {
  if (!(error instanceof Unmapped)) throw error;
  console.error(`not in the package: ${error.message}`);
  process.exit(UNMAPPED);
}
process.stdout.write(`${JSON.stringify(envelope, null, 2)}\n`);
process.exitCode = envelope.ok ? 0 : envelope.error.type === "parse_error" ? 2 : 1;

function options(words, names, flags = []) {
  const out = { rest: [] };
  for (let index = 0; index < words.length; index += 1) {
    const [, name, value] = /^(--[a-z-]+)(?:=([\s\S]*))?$/.exec(words[index]) ?? [];
    if (names.includes(name)) out[name] = value ?? words[(index += 1)];
    else if (flags.includes(name) && value === undefined) out[name] = true;
    else if (words[index].startsWith("-")) throw new Unmapped(`word ${words[index]}`);
    else out.rest.push(words[index]);
  }
  return out;
}

function json(text, name) {
  try {
    return JSON.parse(text);
  } catch {
    throw new Unmapped(`${name} that is not JSON`);
  }
}

async function run(words) {
  const given = options(words, ["--mode", "--file", "--args-json"]);
  if (given["--mode"] !== "tool") throw new Unmapped("human mode");
  if (given.rest.length > 1) throw new Unmapped("several words");
  const args = given["--args-json"] === undefined ? undefined : json(given["--args-json"], "--args-json");
  const [word] = given.rest;
  const file = given["--file"] ?? ((await isWorkflowFile(word)) ? word : undefined);
  // The plugin decides what is a file; the package is told.
  return runToolRequest(file ? { filePath: file, args, ctx } : { pipeline: word, ctx });
}

async function isWorkflowFile(word) {
  if (!word || word.includes("|") || !/\.(lobster|ya?ml|json)$/i.test(word)) return false;
  return stat(path.resolve(word)).then((found) => found.isFile(), () => false);
}

async function resume(words) {
  const given = options(words, ["--token", "--id", "--approve", "--decision", "--response-json"], ["--cancel"]);
  if (given.rest.length > 0) throw new Unmapped("a run to go on with");
  const decision = given["--approve"] ?? given["--decision"];
  const approved = { yes: true, no: false }[decision];
  if (decision !== undefined && approved === undefined) throw new Unmapped(`the decision ${decision}`);
  return resumeToolRequest({
    token: given["--token"],
    approvalId: given["--id"],
    ...(approved === undefined ? {} : { approved }),
    ...(given["--response-json"] === undefined ? {} : { response: json(given["--response-json"], "--response-json") }),
    ...(given["--cancel"] ? { cancel: true } : {}),
    ctx,
  });
}
