// Pictures of each page in each theme and width. A small copy of each is kept beside this file and compared: an
// eighth of the size, in which letters are shades, so that another machine's fonts make no difference and a part that
// moved, vanished or changed its colour does. CONSOLE_PICTURES=DIR keeps the whole ones there, for eyes.
// CONSOLE_PICTURES_UPDATE=1 keeps what is seen from now on.

import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { expect, test } from "@playwright/test";

const { LOBSTER, CONSOLE_DIR, CONSOLE_PICTURES, CONSOLE_KEPT, CONSOLE_PICTURES_UPDATE } = process.env;

const list = (...words) => JSON.parse(execFileSync(LOBSTER, [...words, "--json"], { cwd: CONSOLE_DIR, encoding: "utf8" }));

/// How much smaller the kept copies are.
const EIGHTH = 8;

/// A page may be so much longer or shorter: times and figures have other lengths.
const LENGTH = 0.12;

/// So many of the dots may differ, each by more than SHADE of 255.
const DOTS = 0.04;
const SHADE = 26;

/// The most of a page that is looked at, in pixels.
const TALL = 2400;

// What is another one each time: times, figures, names of runs.
const CHANGING = "time, [data-since], code, .fig, .num, .when, .chart, .pulse, .lean, .rows, .facts, .glance, .strip, .who, .count, .crumbs, .checks";

const pages = () => {
  const failed = list("runs", "--status", "failed").find((run) => run.name === "Nightly import").id;
  const good = list("runs", "--name", "Daily report", "--status", "ok")[0].id;
  const question = (kind) => list("approvals").find((gate) => gate.kind === kind).id;
  return {
    now: "/", runs: "/runs?name=Nightly+import", "no-run": "/runs?name=nothing", failed: `/runs/${failed}`, good: `/runs/${good}`, step: `/runs/${failed}/step?path=parse`,
    compare: `/runs/${good}/compare`, fork: `/runs/${failed}/fork`, approval: `/questions/${question("approval")}`, input: `/questions/${question("input")}`,
    workflows: "/workflows", workflow: "/workflows/report", editor: "/workflows/report/edit", schedules: "/schedules", policy: "/policy?command=rm+-rf+/",
    audit: "/audit", store: "/store", doctor: "/doctor", gone: "/runs/00000000", passkeys: "/passkeys", login: "/login",
  };
};

/// Runs of the schedule that there are: as many as the page of a workflow lists.
const RUNS = 10;

test.beforeAll(async ({}, info) => {
  if (!CONSOLE_KEPT || info.project.name !== "pictures") return;
  info.setTimeout(150_000);
  await expect.poll(() => list("runs", "--name", "Daily report", "--status", "ok").length, { timeout: 140_000 }).toBeGreaterThanOrEqual(RUNS);
  execFileSync(LOBSTER, ["schedule", "pause", "report"], { cwd: CONSOLE_DIR });
});

// An eighth of a picture, as a PNG in base64; and how far two of them differ.
const shrink = (page, picture) =>
  page.evaluate(async ([data, by, tall]) => {
    const image = new Image();
    image.src = `data:image/png;base64,${data}`;
    await image.decode();
    const height = Math.min(image.height, tall);
    const canvas = Object.assign(document.createElement("canvas"), { width: Math.round(image.width / by), height: Math.round(height / by) });
    const context = canvas.getContext("2d");
    context.imageSmoothingQuality = "high";
    context.drawImage(image, 0, 0, image.width, height, 0, 0, canvas.width, canvas.height);
    return canvas.toDataURL("image/png").split(",")[1];
  }, [picture.toString("base64"), EIGHTH, TALL]);

const difference = (page, one, other) =>
  page.evaluate(async ([pair, shade]) => {
    const [one, other] = await Promise.all(pair.map(async (data) => {
      const image = new Image();
      image.src = `data:image/png;base64,${data}`;
      await image.decode();
      const context = Object.assign(document.createElement("canvas"), { width: image.width, height: image.height }).getContext("2d");
      context.drawImage(image, 0, 0);
      return context.getImageData(0, 0, image.width, image.height);
    }));
    const height = Math.min(one.height, other.height);
    let dots = 0;
    for (let at = 0; at < 4 * one.width * height; at += 4) {
      if ([0, 1, 2].some((colour) => Math.abs(one.data[at + colour] - other.data[at + colour]) > shade)) dots += 1;
    }
    return { wide: one.width === other.width, length: Math.abs(one.height - other.height) / other.height, dots: dots / (one.width * height) };
  }, [[one, other], SHADE]);

for (const theme of ["light", "dark", "contrast"]) {
  for (const width of [390, 1280, 1920]) {
    test(`pictures: ${theme}, ${width}`, async ({ browser }, info) => {
      test.skip(!CONSOLE_KEPT || info.project.name !== "pictures");
      test.setTimeout(180_000);
      const isPhone = width < 600;
      const context = await browser.newContext({
        storageState: process.env.CONSOLE_SESSION,
        baseURL: process.env.CONSOLE_URL,
        viewport: { width, height: isPhone ? 844 : 1000 },
        isMobile: isPhone,
        hasTouch: isPhone,
        reducedMotion: "reduce",
      });
      const bench = await (await browser.newContext()).newPage();
      const page = await context.newPage();
      await page.addInitScript((theme) => localStorage.setItem("theme", theme), theme);
      for (const dir of [CONSOLE_KEPT, CONSOLE_PICTURES]) if (dir) mkdirSync(dir, { recursive: true });
      for (const [name, path] of Object.entries(pages())) {
        await page.goto(path);
        await expect(page.locator("h1").first()).toBeVisible();
        const file = `${name}-${theme}-${width}.png`;
        if (CONSOLE_PICTURES) writeFileSync(`${CONSOLE_PICTURES}/${file}`, await page.screenshot({ fullPage: true }));
        const masked = await page.screenshot({ fullPage: true, mask: [page.locator(CHANGING)], maskColor: "#808080", animations: "disabled" });
        const small = await shrink(bench, masked);
        const kept = `${CONSOLE_KEPT}/${file}`;
        if (CONSOLE_PICTURES_UPDATE) writeFileSync(kept, Buffer.from(small, "base64"));
        expect.soft(existsSync(kept), `${file} is not kept: CONSOLE_PICTURES_UPDATE=1 keeps it`).toBe(true);
        if (!existsSync(kept)) continue;
        const differs = await difference(bench, small, readFileSync(kept).toString("base64"));
        expect.soft(differs.wide && differs.length <= LENGTH && differs.dots <= DOTS, `${file} is not as it was: ${JSON.stringify(differs)}`).toBe(true);
      }
      await bench.context().close();
      await context.close();
    });
  }
}
