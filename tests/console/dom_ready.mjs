// How long pages take from the request until their DOM is ready, in milliseconds, the median of so many loads.
//   node dom_ready.mjs BROWSER URL COOKIE ROUNDS PATH...       prints {PATH: MS}
import { chromium } from "@playwright/test";

const [executablePath, url, cookie, rounds, ...paths] = process.argv.slice(2);
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
const context = await browser.newContext({ viewport: { width: 1280, height: 800 } });
const [name, value] = cookie.split(/=(.*)/s);
await context.addCookies([{ name, value, url }]);
const page = await context.newPage();
const figures = {};
for (const path of paths) {
  const times = [];
  // The first load fetches what is kept: style, script and picture.
  for (let round = 0; round <= Number(rounds); round += 1) {
    const reply = await page.goto(url + path, { waitUntil: "domcontentloaded" });
    if (reply.status() !== 200) throw new Error(`${path}: ${reply.status()}`);
    times.push(await page.evaluate(() => performance.getEntriesByType("navigation")[0].domContentLoadedEventEnd));
  }
  times.shift();
  times.sort((a, b) => a - b);
  figures[path] = times[Math.floor(times.length / 2)];
}
console.log(JSON.stringify(figures));
await browser.close();
