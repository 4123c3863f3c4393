// Pictures of each page in each theme and width, for eyes: the first call keeps them in a folder, later ones
// compare with what is there. Fonts differ between machines, so the folder is a person's own.

import { execFileSync } from "node:child_process";
import { expect, test } from "@playwright/test";

const { LOBSTER, CONSOLE_DIR, CONSOLE_PICTURES } = process.env;

const list = (...words) => JSON.parse(execFileSync(LOBSTER, [...words, "--json"], { cwd: CONSOLE_DIR, encoding: "utf8" }));

for (const theme of ["light", "dark", "contrast"]) {
  for (const width of [390, 1280, 1920]) {
    test(`pictures: ${theme}, ${width}`, async ({ browser }, info) => {
      test.skip(!CONSOLE_PICTURES || info.project.name !== "desktop", "CONSOLE_PICTURES names no folder");
      const isPhone = width < 600;
      const context = await browser.newContext({
        storageState: process.env.CONSOLE_SESSION,
        baseURL: process.env.CONSOLE_URL,
        viewport: { width, height: isPhone ? 844 : 1000 },
        isMobile: isPhone,
        hasTouch: isPhone,
        reducedMotion: "reduce",
      });
      const page = await context.newPage();
      await page.addInitScript((theme) => localStorage.setItem("theme", theme), theme);
      const failed = list("runs", "--status", "failed")[0].id;
      const question = (kind) => list("gates").find((gate) => gate.kind === kind).id;
      const pages = {
        now: "/", runs: "/runs", "no-run": "/runs?name=nothing", failed: `/runs/${failed}`, step: `/runs/${failed}/step?path=parse`,
        approval: `/questions/${question("approval")}`, input: `/questions/${question("input")}`, workflows: "/workflows",
        workflow: "/workflows/report", editor: "/workflows/report/edit", schedules: "/schedules", policy: "/policy?command=rm+-rf+/",
        audit: "/audit", store: "/store", doctor: "/doctor", gone: "/runs/00000000", login: "/login",
      };
      for (const [name, path] of Object.entries(pages)) {
        await page.goto(path);
        await expect(page.locator("h1").first()).toBeVisible();
        // What is another one each time: times, figures, names of runs.
        const mask = [page.locator("time, [data-since], code, .fig, .num, .when, .chart, .pulse, .lean, .rows, .facts, .glance, .strip")];
        await expect.soft(page).toHaveScreenshot(`${name}-${theme}-${width}.png`, { fullPage: true, mask, maxDiffPixelRatio: 0.03, timeout: 20_000 });
      }
      await context.close();
    });
  }
}
