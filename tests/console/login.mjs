// Follows a one-time link as a browser does, and keeps the session for the tests.
import { chromium } from "@playwright/test";

const browser = await chromium.launch({ executablePath: process.env.CONSOLE_BROWSER, args: ["--no-sandbox"] });
const page = await browser.newPage();
await page.goto(process.argv[2]);
await page.waitForURL((url) => url.pathname === "/");
await page.context().storageState({ path: process.env.CONSOLE_SESSION });
await browser.close();
