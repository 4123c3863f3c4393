// Texts that become code where they are not escaped, in every place where a run can put a text, on every page:
// none is executed, and none is even held back by the content security policy. The pages are those of the table of
// routes (`runtime/console/src/routes.rs`); a test in Rust holds that none of them is missing here.

import { writeFileSync } from "node:fs";
import { expect, test } from "@playwright/test";
import { overflow, overlaps } from "./fits.mjs";
import { list, lobster } from "./lobster.mjs";

const { CONSOLE_DIR } = process.env;

const newest = (name) => list("runs", `--name=${name}`, "--limit", "1")[0];

const HIT = "window.hit=1";
const VECTORS = [
  `<script>${HIT}</script>`, `<img src=x onerror="${HIT}">`, `<svg/onload=${HIT}>`, `<body onload=${HIT}>`, `<a href="javascript:${HIT}">x</a>`,
  `<iframe srcdoc="<script>parent.${HIT}</script>"></iframe>`, `<details open ontoggle=${HIT}>`, `<input autofocus onfocus=${HIT}>`,
  `<form action="javascript:${HIT}"><button>x</button></form>`, `<object data="javascript:${HIT}"></object>`, `<embed src="data:text/html,<script>${HIT}</script>">`,
  `<math><mtext></p><img src onerror=${HIT}></math>`, `<style>@import "//evil.example"</style>`, `<link rel=stylesheet href=//evil.example>`,
  `<meta http-equiv=refresh content="0;url=javascript:${HIT}">`, `<base href="//evil.example/">`, `<video><source onerror=${HIT}></video>`,
  `<marquee onstart=${HIT}>`, `<template><script>${HIT}</script></template>`, `<noscript><p title="</noscript><img src=x onerror=${HIT}>">`,
  `" onmouseover="${HIT}`, `' onfocus='${HIT}' autofocus='`, "`onclick=" + HIT, `javascript:${HIT}`, `data:text/html,<script>${HIT}</script>`,
  `{{constructor.constructor('${HIT}')()}}`, `\${${HIT}}`, `%3Cscript%3E${HIT}%3C/script%3E`, `&lt;script&gt;${HIT}&lt;/script&gt;`, `\u003cscript\u003e${HIT}\u003c/script\u003e`,
];
const AROUND = [
  (text) => text, (text) => `">${text}`, (text) => `'>${text}`, (text) => `</title>${text}`, (text) => `</textarea>${text}`,
  (text) => `</script>${text}`, (text) => `-->${text}`, (text) => `]]>${text}`, (text) => `\u202e${text}\u202c`, (text) => `</option></select>${text}`,
];
const PAYLOADS = AROUND.flatMap((around) => VECTORS.map(around));

/// So many texts at a time.
const SIZE = 60;

const encoded = encodeURIComponent;

// Runs, questions and files of which everything that can hold a text holds these.
function world(from) {
  const texts = PAYLOADS.slice(from, from + SIZE);
  const all = texts.join("\n");
  const flow = `hostile${from}`;
  const write = (name, value) => writeFileSync(`${CONSOLE_DIR}/${name}`, typeof value === "string" ? value : JSON.stringify(value));
  const say = 'printf "%s" "$LOBSTER_ARG_TEXT"; printf "%s" "$LOBSTER_ARG_TEXT" >&2';
  const args = { text: { default: all, description: texts[1] }, n: { default: 1, type: "integer", description: texts[7] } };
  write("hostile.json", JSON.stringify(texts.map((text) => ({ [text]: text, same: text }))));
  const steps = [
    { id: "say", run: say },
    { id: "rows", run: "cat hostile.json" },
    { id: "ask", stdin: "$rows.json", approval: { prompt: all, preview: all } },
  ];
  // It asks, and is answered below; its file is the one that is registered and written.
  const text = JSON.stringify({ name: texts[0], description: all, args, on: { schedule: { cron: "0 0 1 1 *", args: { text: all } } }, steps }, null, 1);
  write(`${flow}.lobster`, text);
  lobster(["schedule", "register", "--trust", `${flow}.lobster`], { LOBSTER_ACTOR: texts[2] });
  lobster(["schedule", "pause", flow], { LOBSTER_ACTOR: texts[8] });
  const asked = () => {
    lobster(["run", "--mode", "tool", `${flow}.lobster`], { LOBSTER_ACTOR: texts[2] });
    const run = newest(texts[0]);
    return [run.id, list("approvals").find((gate) => gate.run === run.id).id];
  };
  const [answered, closed] = asked();
  lobster(["approvals", "reject", closed], { LOBSTER_APPROVAL_REASON: all, LOBSTER_APPROVAL_APPROVED_BY: texts[3] });
  const [waiting, gate] = asked();
  // One that fails, and two that went well and differ.
  write("other.lobster", { name: texts[4], args: { text: { default: all } }, steps: [{ id: "fail", run: `${say}; exit 1` }] });
  lobster(["run", "--mode", "tool", "other.lobster"]);
  const failed = newest(texts[4]).id;
  write("other.lobster", { name: texts[5], args: { text: { default: all } }, steps: [{ id: "say", run: say }] });
  lobster(["run", "--mode", "tool", "other.lobster"]);
  lobster(["run", "--mode", "tool", "other.lobster", "--args-json", JSON.stringify({ text: texts.toReversed().join("\n") })]);
  const good = newest(texts[5]).id;
  return { texts, all, flow, text, answered, closed, waiting, gate, failed, good, isLast: from + SIZE >= PAYLOADS.length };
}

const form = (path, fields = {}) => ({ path, fields });
const file = (path) => ({ path, isFile: true });

// What is looked at for each route. A page that shows nothing of a run says why it is left out.
const ROUTES = {
  "GET /assets/{name}": "bytes of the program",
  "GET /favicon.ico": "bytes of the program",
  "GET /login": ({ all }) => [`/login?next=${encoded(all)}`],
  "POST /login": ({ all, texts }) => [form("/login", { link: texts[9], next: all })],
  "GET /passkeys": ({ isLast }) => (isLast ? ["/passkeys"] : []),
  "POST /passkeys/{passkey}/forget": ({ texts }) => [form(`/passkeys/${encoded(texts[6])}/forget`)],
  "POST /logout": "shows nothing and would end the session",
  "GET /": () => ["/"],
  "GET /runs": ({ all, texts }) => ["/runs?limit=500", `/runs?name=${encoded(texts[0])}`, `/runs?name=${encoded(all)}`, `/runs?status=${encoded(texts[6])}`],
  "GET /runs/{run}": ({ texts, answered, waiting, failed, good }) => [answered, waiting, failed, good, encoded(texts[5])].map((run) => `/runs/${run}`),
  "GET /runs/{run}/step": ({ texts, waiting, failed }) => [`/runs/${waiting}/step?path=say`, `/runs/${waiting}/step?path=rows`, `/runs/${failed}/step?path=fail`, `/runs/${failed}/step?path=${encoded(texts[6])}`],
  "GET /runs/{run}/output": ({ texts, failed }) => [file(`/runs/${failed}/output?path=fail&stream=stdout`), `/runs/${failed}/output?path=${encoded(texts[6])}`],
  "GET /runs/{run}/compare": ({ texts, good, failed }) => [`/runs/${good}/compare`, `/runs/${good}/compare?step=say`, `/runs/${failed}/compare?with=${good}`, `/runs/${good}/compare?with=${encoded(texts[6])}&step=${encoded(texts[6])}`],
  "GET /runs/{run}/bundle": ({ good }) => [file(`/runs/${good}/bundle`)],
  "POST /runs/{run}/cancel": ({ texts, failed }) => [form(`/runs/${failed}/cancel`), form(`/runs/${encoded(texts[6])}/cancel`)],
  "POST /runs/{run}/resume": ({ failed }) => [form(`/runs/${failed}/resume`)],
  "POST /runs/{run}/replay": ({ good }) => [form(`/runs/${good}/replay`)],
  "GET /runs/{run}/fork": ({ good, answered }) => [`/runs/${good}/fork`, `/runs/${answered}/fork`],
  "POST /runs/{run}/fork": ({ good, all, texts }) => [form(`/runs/${good}/fork`, { "f.text": all, act: "plan", from: texts[6] })],
  "GET /questions/{approval}": ({ texts, gate, closed }) => [gate, closed, encoded(texts[6])].map((gate) => `/questions/${gate}`),
  "POST /questions/{approval}": ({ all, gate, texts }) => [form(`/questions/${gate}`, { decision: "reject", digest: texts[6], reason: all }), form(`/questions/${gate}`, { decision: texts[6], reason: all })],
  "GET /workflows": () => ["/workflows"],
  "GET /workflows/{workflow}": ({ flow, texts }) => [`/workflows/${flow}`, `/workflows/${encoded(texts[6])}`],
  "POST /workflows/{workflow}/runs": ({ flow, all, texts }) => [form(`/workflows/${flow}/runs`, { "f.text": all, "f.n": texts[6] }), form(`/workflows/${flow}/runs`, { "f.text": all, "f.n": "3" })],
  "GET /workflows/{workflow}/edit": ({ flow }) => [`/workflows/${flow}/edit`],
  "POST /workflows/{workflow}/edit": ({ flow, text, all }) => [form(`/workflows/${flow}/edit`, { text: `${text}\n${all}`, act: "check" }), form(`/workflows/${flow}/edit`, { text: text.replace("cat", "tac"), act: "save" }), form(`/workflows/${flow}/edit`, { text: all, act: "check" })],
  "POST /workflows/{workflow}/register": ({ flow, texts }) => [form(`/workflows/${flow}/register`, { digest: texts[6] })],
  "GET /new": ({ texts }) => [`/new?name=${encoded(texts[6])}`],
  "GET /schedules": () => ["/schedules"],
  "POST /schedules/{workflow}/{schedule}/pause": ({ flow, texts }) => [form(`/schedules/${flow}/schedule/pause`), form(`/schedules/${flow}/${encoded(texts[6])}/pause`)],
  "POST /schedules/{workflow}/{schedule}/resume": ({ flow, texts }) => [form(`/schedules/${flow}/schedule/resume`), form(`/schedules/${encoded(texts[6])}/schedule/resume`)],
  "GET /audit": () => ["/audit"],
  "GET /store": () => ["/store"],
  "POST /store/verify": ({ isLast }) => (isLast ? [form("/store/verify")] : []),
  "POST /store/collect": ({ texts, isLast }) => [form("/store/collect", { "older-than": texts[6], act: "look" }), ...(isLast ? [form("/store/collect", { "older-than": "365d", act: "look" })] : [])],
  "POST /store/backup": ({ isLast }) => (isLast ? [form("/store/backup")] : []),
  "GET /doctor": ({ isLast }) => (isLast ? ["/doctor"] : []),
  "GET /policy": ({ all, isLast }) => [`/policy?command=${encoded(all)}`, ...(isLast ? ["/policy?look=rules&latest=20", "/policy?look=runs&latest=20"] : [])],
};

async function go(page, one) {
  if (typeof one === "string") return page.goto(one);
  await page.goto("/nothing");
  const done = page.waitForNavigation();
  await page.evaluate(({ path, fields }) => {
    const form = Object.assign(document.createElement("form"), { method: "post", action: path });
    for (const [name, value] of Object.entries(fields)) form.append(Object.assign(document.createElement("textarea"), { name, value }));
    document.body.append(form);
    form.submit();
  }, one);
  return done;
}

// What is neither ours nor text.
const STRANGE = ["script", "img", "iframe", "object", "embed", "video", "style", "link", "base", "math", "template", "marquee", "meta", "[onerror]", "[onload]", "[onfocus]", "[onmouseover]", "[onclick]", "[srcdoc]", "[href^='javascript']", "[action^='javascript']"].map((what) => `main ${what}`).join(", ");

for (let from = 0; from < PAYLOADS.length; from += SIZE) {
  test(`nothing that a run says is executed: texts ${from} to ${from + SIZE}`, async ({ page }, info) => {
    test.skip(info.project.name !== "desktop");
    test.setTimeout(180_000);
    expect(PAYLOADS.length).toBe(300);
    // Every second time as wide as a phone.
    if ((from / SIZE) % 2 === 1) await page.setViewportSize({ width: 390, height: 844 });
    await page.addInitScript(() => {
      window.reports = [];
      document.addEventListener("securitypolicyviolation", (event) => window.reports.push(`${event.violatedDirective} ${event.blockedURI}`));
    });
    const here = world(from);
    for (const [route, what] of Object.entries(ROUTES)) {
      for (const one of typeof what === "string" ? [] : what(here)) {
        const where = [route, typeof one === "string" ? one : one.path];
        if (one.isFile) {
          const reply = await page.request.get(one.path);
          const headers = reply.headers();
          expect([where, headers["content-disposition"]?.startsWith("attachment"), headers["x-content-type-options"]]).toEqual([where, true, "nosniff"]);
          continue;
        }
        await go(page, one);
        await expect(page.locator("main, h1").first()).toBeVisible();
        await page.mouse.move(400, 400);
        expect([where, await page.evaluate(() => [window.hit ?? 0, window.reports])]).toEqual([where, [0, []]]);
        expect([where, await page.locator(STRANGE).count()]).toEqual([where, 0]);
        expect([where, await overflow(page), await overlaps(page)]).toEqual([where, 0, []]);
      }
    }
  });
}
