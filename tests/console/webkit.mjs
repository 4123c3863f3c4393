// The console in WebKit, over WebDriver (https://www.w3.org/TR/webdriver2/) as the system's own driver speaks it.
//   node webkit.mjs BROWSER LINK

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createServer } from "node:net";
import { overflow, overlaps } from "./fits.mjs";
import { list, lobster } from "./lobster.mjs";

const { CONSOLE_URL } = process.env;
const [browser, link] = process.argv.slice(2);

async function until(what, holds) {
  for (const began = Date.now(); Date.now() - began < 60_000; ) {
    if (await holds()) return console.log(`ok: ${what}`);
    await new Promise((done) => setTimeout(done, 100));
  }
  assert.fail(`not within a minute: ${what}`);
}

const port = await new Promise((found) => {
  const server = createServer().listen(0, "127.0.0.1", () => {
    const { port } = server.address();
    server.close(() => found(port));
  });
});
const driver = spawn("WebKitWebDriver", [`--port=${port}`], { stdio: "ignore" });
process.on("exit", () => driver.kill());

async function ask(method, path, body) {
  const reply = await fetch(`http://127.0.0.1:${port}${path}`, { method, body: body && JSON.stringify(body) });
  const { value } = await reply.json();
  if (!reply.ok) throw new Error(`${path}: ${value.error}: ${value.message}`);
  return value;
}

await until("the driver listens", () => ask("GET", "/status").then(() => true, () => false));
const options = { binary: browser, args: ["--automation"] };
const { sessionId, capabilities } = await ask("POST", "/session", { capabilities: { alwaysMatch: { "webkitgtk:browserOptions": options } } });
const session = `/session/${sessionId}`;
console.log(`WebKit ${capabilities.browserVersion}`);

const go = (path) => ask("POST", `${session}/url`, { url: new URL(path, CONSOLE_URL).href });
const page = { evaluate: (what, ...args) => ask("POST", `${session}/execute/sync`, { script: `return (${what})(...arguments)`, args }) };
const text = (selector) => page.evaluate((selector) => document.querySelector(selector)?.textContent ?? "", selector);

try {
  await go(link);
  await until("the link logs in", async () => new URL(await ask("GET", `${session}/url`)).pathname === "/");

  const failed = list("runs", "--status", "failed")[0].id;
  const question = list("approvals").find((gate) => gate.kind === "approval").id;
  const pages = [
    "/", "/runs", "/workflows", "/workflows/report", "/workflows/report/edit", "/schedules", "/policy?command=rm+-rf+/", "/audit", "/store",
    "/doctor", "/passkeys", `/runs/${failed}`, `/runs/${failed}/step?path=parse`, `/questions/${question}`, "/runs/00000000",
  ];
  for (const path of pages) {
    await go(path);
    assert.notEqual(await text("h1"), "", path);
    assert.deepEqual([path, await overflow(page), await overlaps(page)], [path, 0, []]);
  }
  console.log(`ok: ${pages.length} pages fit`);

  await go("/runs");
  const state = () => page.evaluate(() => document.querySelector(".pulse").dataset.state);
  await until("the page is live", async () => (await state()) === "live");
  lobster(["run", "--mode", "tool", "broken.lobster"]);
  const last = list("runs", "--status", "failed")[0].id;
  await until("a run of a terminal appears without a reload", () => page.evaluate((path) => !!document.querySelector(`#runs a[href="${path}"]`), `/runs/${last}`));

  await go(`/questions/${question}`);
  const yes = await ask("POST", `${session}/element`, { using: "css selector", value: "button[value=approve]" });
  await ask("POST", `${session}/element/${Object.values(yes)[0]}/click`, {});
  await until("a question is answered", () => !list("approvals").some((gate) => gate.id === question && gate.status === "open"));

  await go("/workflows/report/edit");
  await page.evaluate(() => {
    const area = document.querySelector("textarea");
    area.value = area.value.replace("id: done", "idd: done");
    area.dispatchEvent(new Event("input", { bubbles: true }));
  });
  await until("a text is checked while it is written", async () => (await text("#findings")).includes("requires an id"));
} finally {
  await ask("DELETE", session).catch(() => {});
  driver.kill();
}
