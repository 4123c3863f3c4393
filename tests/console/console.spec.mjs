// The console as people meet it: each page, live updates, answering, the keyboard, hostile texts.
// No page may log an error or break its content security policy.

import { spawn } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { AxeBuilder } from "@axe-core/playwright";
import { expect, test as base } from "@playwright/test";
import { overflow, overlaps } from "./fits.mjs";
import { list, lobster } from "./lobster.mjs";

const { LOBSTER, CONSOLE_DIR } = process.env;

const runs = (...words) => list("runs", ...words);
const gates = () => list("approvals");

// What a page says to the developer's console is an error of ours.
const test = base.extend({
  page: async ({ page }, use) => {
    const said = [];
    page.on("console", (message) => {
      if (["error", "warning"].includes(message.type()) && !/status of (4|5)\d\d/.test(message.text())) said.push(message.text());
    });
    page.on("pageerror", (error) => said.push(String(error)));
    page.on("dialog", (dialog) => dialog.accept());
    await use(page);
    expect(said).toEqual([]);
  },
});

const PAGES = ["/", "/runs", "/workflows", "/workflows/report", "/workflows/report/edit", "/schedules", "/policy?command=rm+-rf+/", "/audit", "/store", "/doctor", "/passkeys"];

async function expectAccessible(page) {
  const found = await new AxeBuilder({ page }).analyze();
  expect(found.violations.map(({ id, nodes }) => [id, nodes.slice(0, 3).map((node) => node.html)])).toEqual([]);
}

for (const theme of ["light", "dark", "contrast"]) {
  test(`each page is accessible and fits: ${theme}`, async ({ page }) => {
    await page.addInitScript((theme) => localStorage.setItem("theme", theme), theme);
    const failed = runs("--status", "failed")[0];
    const pages = theme === "light" ? [...PAGES, `/runs/${failed.id}`, `/runs/${failed.id}/step?path=parse`, `/questions/${gates()[0].id}`, "/runs/00000000"] : ["/", `/runs/${failed.id}`, `/questions/${gates()[0].id}`];
    for (const path of pages) {
      await page.goto(path);
      await expect(page.locator("h1").first()).toBeVisible();
      expect(await overflow(page)).toBe(0);
      expect(await overlaps(page)).toEqual([]);
      await expectAccessible(page);
    }
  });
}

test("a failed run opens at the failing line", async ({ page }) => {
  await page.goto("/runs?status=failed");
  await page.getByRole("link", { name: /Nightly import/ }).first().click();
  await expect(page.locator("#failure")).toContainText("broken.lobster:7");
  await expect(page.locator("#failure .hit")).toContainText("parse");
  await expect(page.locator("#failure")).toContainText("line 17: expected 9 columns");
});

test("a run of a terminal appears and moves without a reload", async ({ page }) => {
  await page.goto("/runs");
  await expect(page.locator(".pulse")).toHaveAttribute("data-state", "live");
  await page.evaluate(() => (window.notReloaded = true));
  const name = `live${Date.now()}`;
  const child = spawn(LOBSTER, ["run", "--mode", "tool", `exec --shell 'sleep 3; echo ${name}'`], { cwd: CONSOLE_DIR, stdio: "ignore" });
  const row = page.locator("#runs li", { hasText: name });
  await expect(row).toBeVisible();
  await expect(row.locator("b")).toHaveText("running");
  await expect(row.locator("b")).toHaveText("ok", { timeout: 20_000 });
  expect(await page.evaluate(() => window.notReloaded)).toBe(true);
  await new Promise((done) => (child.exitCode === null ? child.on("exit", done) : done()));
});

test("many tabs share one connection, and the next one takes over", async ({ context }, info) => {
  test.skip(info.project.name !== "desktop");
  // The end of a connection is not told of a tab that is closed: it ends with its tab.
  const open = new Map();
  context.on("request", (request) => request.url().endsWith("/api/v1/changes") && open.set(request, request.frame().page()));
  context.on("requestfinished", (request) => open.delete(request));
  context.on("requestfailed", (request) => open.delete(request));
  const count = () => [...open.values()].filter((page) => !page.isClosed()).length;
  const tabs = [];
  for (let tab = 0; tab < 9; tab++) {
    const page = await context.newPage();
    await page.goto("/runs");
    tabs.push(page);
  }
  for (const page of tabs) await expect(page.locator(".pulse")).toHaveAttribute("data-state", "live");
  // The browser tells of a connection that has ended a moment later.
  await expect.poll(count).toBe(1);
  await tabs[0].close();
  await expect.poll(count).toBe(1);
  const name = `tabs${Date.now()}`;
  lobster(["run", "--mode", "tool", `exec --shell 'echo ${name}'`]);
  await tabs[8].bringToFront();
  await expect(tabs[8].locator("#runs li", { hasText: name })).toBeVisible();
});

test("a question is answered by touch, and by keyboard alone", async ({ page }, info) => {
  lobster(["run", "--mode", "tool", "approve.lobster"]);
  const gate = gates().find((gate) => gate.request.prompt.startsWith("Send these invoices"));
  await page.goto(`/questions/${gate.id}`);
  await expect(page.locator("table tbody tr")).toHaveCount(3);
  await expect(page.locator("main")).toContainText("rm -f draft");
  const yes = page.getByRole("button", { name: "Yes, do it" });
  const box = await yes.boundingBox();
  expect(box.height).toBeGreaterThanOrEqual(48);
  if (info.project.name === "phone") await yes.tap();
  else {
    await yes.focus();
    await page.keyboard.press("Enter");
  }
  await expect(page.locator("main")).toContainText("approved");
  await expect.poll(() => runs("--status", "ok").some((run) => run.id === gate.run)).toBe(true);
});

test("a no has its reason in the record", async ({ page }) => {
  lobster(["run", "--mode", "tool", "approve.lobster"]);
  const gate = gates()[0];
  await page.goto(`/questions/${gate.id}`);
  await page.getByLabel("Reason").fill("the amounts are wrong");
  await page.getByRole("button", { name: "No", exact: true }).click();
  await expect(page.locator("main")).toContainText("rejected");
  expect(lobster(["show", gate.run, "--json"])).toContain("the amounts are wrong");
});

test("a form made from a schema says what is wrong and keeps what was typed", async ({ page }) => {
  lobster(["run", "--mode", "tool", "ask.lobster"]);
  const gate = gates().find((gate) => gate.kind === "input");
  await page.goto(`/questions/${gate.id}`);
  await page.getByLabel("room").selectOption({ label: "Attic" });
  await page.getByLabel("people").fill("40");
  await page.getByLabel("note").fill("near the stairs");
  await page.getByRole("button", { name: "Send the answer" }).click();
  await expect(page.getByRole("alert")).toContainText("people");
  await expect(page.getByLabel("note")).toHaveValue("near the stairs");
  await page.getByLabel("people").fill("4");
  await page.getByRole("button", { name: "Send the answer" }).click();
  await expect(page.locator("main")).toContainText("near the stairs");
  await expect(page.locator("main")).toContainText("answered");
});

test("reading and answering need no script", async ({ browser }) => {
  const context = await browser.newContext({ javaScriptEnabled: false, storageState: process.env.CONSOLE_SESSION, baseURL: process.env.CONSOLE_URL });
  const page = await context.newPage();
  lobster(["run", "--mode", "tool", "approve.lobster"]);
  await page.goto("/");
  await page.locator("#questions .row", { hasText: "Send these invoices" }).first().click();
  await page.getByRole("button", { name: "Yes, do it" }).click();
  await expect(page.locator("main")).toContainText("approved");
  await context.close();
});

test("a session that ends in the middle of a form loses nothing", async ({ browser }) => {
  const context = await browser.newContext({ javaScriptEnabled: false, storageState: process.env.CONSOLE_SESSION, baseURL: process.env.CONSOLE_URL });
  const page = await context.newPage();
  await page.goto("/workflows/report");
  await page.getByLabel("day").fill("a long thought");
  await context.clearCookies();
  await page.getByRole("button", { name: "Start" }).click();
  await expect(page.locator("main")).toContainText("Your session had ended");
  await expect(page.getByLabel("day")).toHaveValue("a long thought");
  await context.close();
});

test("the palette and keys lead everywhere", async ({ page }, info) => {
  test.skip(info.project.name !== "desktop");
  await page.goto("/");
  await page.keyboard.press("Control+k");
  await page.keyboard.type("sched");
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(/\/schedules$/);
  await page.keyboard.press("g");
  await page.keyboard.press("r");
  await expect(page).toHaveURL(/\/runs$/);
  await page.keyboard.press("j");
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(/\/runs\/[0-9a-f-]{36}/);
});

test("a theme stays", async ({ page }, info) => {
  test.skip(info.project.name !== "desktop");
  await page.goto("/");
  await page.keyboard.press("t");
  await page.keyboard.press("t");
  await page.reload();
  await expect(page.locator("html")).toHaveAttribute("data-theme", "dark");
});

test("a run is started, replayed and forked", async ({ page }) => {
  await page.goto("/workflows/report");
  await page.getByLabel("day").fill("2026-06-02");
  await page.getByRole("button", { name: "Start" }).click();
  await expect(page).toHaveURL(/\/runs\/[0-9a-f-]{36}/);
  await expect(page.locator("#head .badge")).toHaveText("ok", { timeout: 30_000 });
  await expect(page.locator("#steps")).toContainText("each");
  const run = page.url();
  await page.getByRole("button", { name: "Replay and compare" }).click();
  await expect(page.locator(".note.is-ok")).toBeVisible({ timeout: 30_000 });
  await page.goto(`${run}/fork`);
  await page.getByLabel("limit").fill("3");
  await page.getByRole("button", { name: "Show what would run" }).click();
  await expect(page.locator("main")).toContainText("Reused");
  await page.getByRole("button", { name: "Fork", exact: true }).click();
  await expect(page.locator("main")).toContainText("Of run", { timeout: 30_000 });
});

test("a workflow is written with help, shown as a difference, saved and registered", async ({ page }, info) => {
  test.skip(info.project.name !== "desktop");
  const name = `written${Date.now()}`;
  await page.goto("/workflows");
  await page.getByLabel("Name of a new workflow").fill(name);
  await page.getByRole("button", { name: "Create" }).click();
  const text = page.getByRole("textbox", { name: `${name}.lobster` });
  await expect(page.locator(".gutter")).toContainText("7");
  await text.fill("steps:\n  - id: one\n    run: echo 1\n  - id: two\n    run: echo 2\n    timeot_ms: 5\n");
  // What is wrong stands beside the text, with its place.
  const finding = page.locator("#findings .row", { hasText: "did you mean" });
  await expect(finding.locator("[data-line]")).toHaveText("6:5");
  await expect(page.locator("#picture")).toContainText("one");
  await finding.locator("[data-line]").click();
  expect(await text.evaluate((area) => area.value.slice(area.selectionStart, area.selectionEnd))).toBe("timeot_ms: 5");
  // A field, a value and a reference are proposed and taken.
  await page.keyboard.press("Delete");
  await page.keyboard.type("on_e");
  await expect(page.locator("#proposals [role=option]").first()).toContainText("on_error");
  await page.keyboard.press("Enter");
  await expect(page.locator("#proposals")).toContainText("continue");
  await page.keyboard.type("cont");
  await expect(page.locator("#proposals [role=option]")).toHaveCount(1);
  await page.keyboard.press("Enter");
  await page.keyboard.press("ArrowUp");
  await page.keyboard.press("End");
  await page.keyboard.type(" $o");
  await expect(page.locator("#proposals")).toContainText("one");
  await page.keyboard.press("Tab");
  await expect(page.locator("#proposals")).toContainText("stdout");
  await page.keyboard.type("std");
  await expect(page.locator("#proposals [role=option]")).toHaveCount(1);
  await page.keyboard.press("Enter");
  await expect(text).toHaveValue("steps:\n  - id: one\n    run: echo 1\n  - id: two\n    run: echo 2 $one.stdout\n    on_error: continue\n");
  await expect(page.locator("#findings")).not.toContainText("did you mean");
  await expectAccessible(page);
  // What was typed is there again after the page was left.
  await page.goto("/runs");
  await page.goBack();
  await expect(text).toHaveValue(/one\.stdout/);
  await expect(page.locator("#restored")).toBeVisible();
  await text.press("Control+s");
  await expect(page.locator("#saving .add").first()).toBeVisible();
  await page.getByRole("button", { name: "Save and register" }).click();
  await expect(page.locator("main")).toContainText("This version is registered");
  await page.goto(`/workflows/${name}`);
  await page.getByRole("button", { name: "Start" }).click();
  await expect(page.locator("#head .badge")).toHaveText("ok", { timeout: 30_000 });
  await expect(page.locator("#graph .node.is-ok")).toHaveCount(2);
});

test("a text that somebody else saved is not lost, without scripts", async ({ browser }, info) => {
  test.skip(info.project.name !== "desktop");
  const context = await browser.newContext({ javaScriptEnabled: false, storageState: process.env.CONSOLE_SESSION, baseURL: process.env.CONSOLE_URL });
  const page = await context.newPage();
  const file = `${CONSOLE_DIR}/shared.lobster`;
  writeFileSync(file, "steps:\n  - {id: a, run: 'true'}\n");
  await expect(async () => {
    await page.goto("/workflows/shared/edit");
    await expect(page.locator("textarea")).toHaveValue(/run: 'true'/);
  }).toPass();
  await page.locator("textarea").fill("steps:\n  - {id: mine, run: 'true'}\n");
  await page.getByRole("button", { name: "Save…" }).click();
  writeFileSync(file, "steps:\n  - {id: theirs, run: 'true'}\n");
  await page.getByRole("button", { name: "Save the file" }).click();
  await expect(page.getByRole("alert")).toContainText("has changed since you opened it");
  await expect(page.locator("textarea")).toHaveValue(/id: mine/);
  expect(readFileSync(file, "utf8")).toContain("theirs");
  await context.close();
});

test("a run is compared with the last good one, and carried away", async ({ page }, info) => {
  test.skip(info.project.name !== "desktop");
  writeFileSync(`${CONSOLE_DIR}/turns.lobster`, "name: Turns\nsteps:\n  - {id: look, run: 'cat turn'}\n");
  writeFileSync(`${CONSOLE_DIR}/turn`, "1");
  lobster(["run", "--mode", "tool", "turns.lobster"]);
  writeFileSync(`${CONSOLE_DIR}/turn`, "2");
  lobster(["run", "--mode", "tool", "turns.lobster"]);
  await page.goto(`/runs/${runs("--name", "Turns")[0].id}`);
  const [bundle] = await Promise.all([page.waitForEvent("download"), page.getByRole("link", { name: "Bundle" }).click()]);
  const path = `${CONSOLE_DIR}/carried.lobster-bundle`;
  await bundle.saveAs(path);
  expect(lobster(["bundle", "verify", path])).not.toBe("");
  await page.getByRole("link", { name: "Diff with the last good run" }).click();
  await expect(page.locator("main")).toContainText("another result");
  await page.getByRole("link", { name: "why" }).click();
  await expect(page.locator("#why")).toContainText("look");
});

// A browser without a session on a device that keeps keys, and whether the finger on it is its owner's.
async function deviceAt(browser, url) {
  const context = await browser.newContext({ storageState: { cookies: [], origins: [] }, baseURL: url });
  const page = await context.newPage();
  const device = await context.newCDPSession(page);
  await device.send("WebAuthn.enable");
  const { authenticatorId } = await device.send("WebAuthn.addVirtualAuthenticator", {
    options: { protocol: "ctap2", transport: "internal", hasResidentKey: true, hasUserVerification: true, isUserVerified: true, automaticPresenceSimulation: true },
  });
  return { context, page, unlocks: (isUserVerified) => device.send("WebAuthn.setUserVerified", { authenticatorId, isUserVerified }) };
}

test("the key that a device keeps logs its owner in", async ({ browser }) => {
  // Browsers keep keys for names, and over plain HTTP for this one alone.
  const url = process.env.CONSOLE_URL.replace("127.0.0.1", "localhost");
  const { context, page, unlocks } = await deviceAt(browser, url);
  const name = `kim${Date.now()}`;
  // The link is pasted where the page of the login is open already.
  await page.goto("/login");
  await page.goto(lobster(["serve", "link", "--name", name, "--role", "approver", "--url", url]).trim());
  await page.getByRole("link", { name: "Add a passkey" }).click();
  await expect(page.getByText("You have no passkey")).toBeVisible();
  expect(await overflow(page)).toBe(0);
  await expectAccessible(page);
  await page.getByRole("button", { name: "Add a passkey of this device" }).click();
  await expect(page.locator("table code")).toHaveText(/^passkey-/);
  await expectAccessible(page);

  // Tomorrow there is no session any more.
  for (const path of ["/runs", "/login"]) {
    await context.clearCookies();
    await page.goto(path);
    await expectAccessible(page);
    await page.getByRole("button", { name: "Log in with a passkey" }).click();
    await expect(page.locator("h1").first()).toHaveText(path === "/login" ? "Now" : "Runs");
    const me = await page.evaluate(() => fetch("/api/v1/me").then((reply) => reply.json()));
    expect([me.name, me.role]).toEqual([name, "approver"]);
  }

  // A finger that the device does not know.
  await context.clearCookies();
  await unlocks(false);
  await page.goto("/login");
  await page.getByRole("button", { name: "Log in with a passkey" }).click();
  await expect(page.getByText("Nothing was unlocked.")).toBeVisible();

  // Forgotten here, the key opens nothing.
  await unlocks(true);
  await page.getByRole("button", { name: "Log in with a passkey" }).click();
  await expect(page.locator("h1").first()).toHaveText("Now");
  await page.goto("/passkeys");
  page.once("dialog", (dialog) => dialog.accept());
  await page.getByRole("button", { name: "Forget" }).click();
  await expect(page.getByText("You have no passkey")).toBeVisible();
  await context.clearCookies();
  await page.goto("/login");
  await page.getByRole("button", { name: "Log in with a passkey" }).click();
  await expect(page.getByText("this key is not known here")).toBeVisible();
  await context.close();
});

test("at an address without a name there are no passkeys", async ({ page }) => {
  await page.goto("/passkeys");
  await expect(page.getByText("Not at this address")).toBeVisible();
  await expect(page.getByRole("button", { name: "Add a passkey" })).toHaveCount(0);
});

test("a yes is confirmed with a key, where the server asks for that", async ({ browser }, info) => {
  test.skip(info.project.name !== "desktop");
  const settings = `${CONSOLE_DIR}/confirm.toml`;
  writeFileSync(settings, 'confirm = "passkey"\n');
  const server = spawn(LOBSTER, ["serve", "--listen", "127.0.0.1:0", "--config", settings], { cwd: CONSOLE_DIR, stdio: ["ignore", "ignore", "pipe"] });
  const address = await new Promise((done) => {
    let said = "";
    server.stderr.on("data", (data) => {
      said += data;
      const found = said.match(/listens on http:\/\/127\.0\.0\.1:(\d+)/);
      if (found) done(`http://localhost:${found[1]}`);
    });
  });
  const { context, page, unlocks } = await deviceAt(browser, address);
  const name = `lou${Date.now()}`;
  await page.goto(lobster(["serve", "link", "--name", name, "--role", "approver", "--url", address]).trim());
  await expect(page.locator("h1").first()).toHaveText("Now");
  lobster(["run", "--mode", "tool", "approve.lobster"]);
  const gate = gates().find((gate) => gate.status === "open" && gate.kind === "approval");
  const yes = page.getByRole("button", { name: "Yes, do it" });
  await page.goto(`/questions/${gate.id}`);
  await yes.click();
  await expect(page.getByText("Nothing was unlocked.")).toBeVisible();
  await page.goto("/passkeys");
  await page.getByRole("button", { name: "Add a passkey of this device" }).click();
  await expect(page.locator("table code")).toHaveText(/^passkey-/);
  await page.goto(`/questions/${gate.id}`);
  await expectAccessible(page);
  await unlocks(false);
  await yes.click();
  await expect(page.getByText("Nothing was unlocked.")).toBeVisible();
  await unlocks(true);
  await yes.click();
  await expect(page.getByText(`by ${name}`)).toBeVisible();
  await context.close();
  server.kill();
});
