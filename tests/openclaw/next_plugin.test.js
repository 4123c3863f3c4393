// Every call of OpenClaw's newer plugin answers over our package as over the incumbent's.
//
//   LOBSTER_BIN=<program> [INCUMBENT_CORE=<its core module>] node --test next_plugin.test.js
//
// What the incumbent answers is recorded in next_plugin.json; with INCUMBENT_CORE it is asked again,
// and RECORD=1 writes the file anew.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const recordFile = new URL("next_plugin.json", import.meta.url);
const ours = fileURLToPath(new URL("../../cli/npm/src/core.js", import.meta.url));
const theirs = process.env.INCUMBENT_CORE;

/** Error texts of ours that say more than the incumbent's. */
const SAYS_MORE = ["it answers nonsense"];

function results(core) {
  const driver = fileURLToPath(new URL("next_plugin.mjs", import.meta.url));
  const done = spawnSync(process.execPath, [driver, core], { encoding: "utf8", maxBuffer: 64 * 1024 * 1024, timeout: 300_000 });
  assert.equal(done.status, 0, done.stderr);
  return JSON.parse(done.stdout);
}

if (theirs && process.env.RECORD) writeFileSync(recordFile, `${JSON.stringify(results(theirs), null, 1)}\n`);
const recorded = JSON.parse(readFileSync(recordFile, "utf8"));

test("the incumbent answers as recorded", { skip: !theirs }, () => {
  assert.deepEqual(results(theirs), recorded);
});

const answered = new Map(results(ours).map((result) => [result.name, result]));
for (const wanted of recorded) {
  test(`our package: ${wanted.name}`, () => {
    const got = answered.get(wanted.name);
    if (SAYS_MORE.includes(wanted.name)) {
      assert.ok(got.result.error.startsWith(wanted.result.error), got.result.error);
      assert.deepEqual({ ...got, result: wanted.result }, wanted);
    } else {
      assert.deepEqual(got, wanted);
    }
  });
}

test("no call is left out", () => {
  assert.deepEqual([...answered.keys()], recorded.map(({ name }) => name));
  assert.ok(recorded.length >= 50);
});
