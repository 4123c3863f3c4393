// One worker: the tests share a server, and a machine of two cores has no room for more browsers.
export default {
  testDir: ".",
  workers: 1,
  reporter: "list",
  timeout: 60_000,
  // A browser on a busy machine stalls; what needed a second try is reported as flaky.
  retries: 1,
  expect: { timeout: 15_000 },
  use: {
    baseURL: process.env.CONSOLE_URL,
    storageState: process.env.CONSOLE_SESSION,
    launchOptions: { executablePath: process.env.CONSOLE_BROWSER, args: ["--no-sandbox"] },
  },
  projects: [
    // Pictures are a project of their own: they depend on what other tests leave.
    { name: "pictures", testMatch: "pictures.spec.mjs" },
    { name: "desktop", testIgnore: "pictures.spec.mjs", use: { viewport: { width: 1280, height: 800 } } },
    {
      name: "phone",
      testIgnore: "pictures.spec.mjs",
      use: { viewport: { width: 390, height: 844 }, isMobile: true, hasTouch: true, colorScheme: "dark" },
    },
  ],
};
