// The GitHub recipes of `@clawdbot/lobster`: pull requests that are watched with the `gh` command.

import { Lobster } from "../sdk/lobster.js";
import { ExitError, NotFoundError, commandOutput, diffLast } from "../sdk/stages.js";

const FIELDS = [
  "number",
  "title",
  "url",
  "state",
  "isDraft",
  "mergeable",
  "reviewDecision",
  "author",
  "baseRefName",
  "headRefName",
  "updatedAt",
];

/** The fields whose change is told. */
const TOLD = FIELDS.filter((field) => field !== "author");

const OPTIONS = {
  repo: { type: "string", required: true },
  pr: { type: "number", required: true },
  key: { type: "string" },
};

/**
 * A stage that gives a pull request as `gh pr view` does.
 *
 * @param {import("./github.d.ts").PrViewOptions} options
 * @returns {import("../sdk/index.d.ts").Stage}
 */
export function ghPrView(options) {
  const { repo, pr } = options;
  if (!repo) throw new Error("ghPrView requires repo");
  if (!pr) throw new Error("ghPrView requires pr");
  return {
    type: "github.pr.view",
    repo,
    pr,
    async run({ input, ctx }) {
      for await (const _item of input) {
        // Read and left.
      }
      const words = ["gh", "pr", "view", String(pr), "--repo", String(repo), "--json", (options.fields ?? FIELDS).join(",")];
      const stdout = await commandOutput(words, { ...ctx, cwd: process.cwd() }).catch(told);
      try {
        return { output: [JSON.parse(stdout.trim())] };
      } catch {
        throw new Error("gh returned non-JSON output");
      }
    },
  };
}

/**
 * What a pull request is now, and what of it has changed since the last time.
 *
 * @param {import("./github.d.ts").PrMonitorOptions} options
 * @returns {Lobster}
 */
export function prMonitor(options) {
  const { repo, pr, changesOnly = false, summaryOnly = false } = options;
  if (!repo) throw new Error("prMonitor requires repo");
  if (!pr) throw new Error("prMonitor requires pr");
  const key = options.key ?? `github.pr:${repo}#${pr}`;
  return new Lobster({ signal: options.signal })
    .pipe(ghPrView({ repo, pr }))
    .pipe(diffLast(key))
    .pipe(([{ before, after, changed }]) => {
      const about = { kind: "github.pr.monitor", repo, pr: Number(pr), key, changed };
      if (changesOnly && !changed) return [{ ...about, suppressed: true }];
      const summary = changesOf(before, after);
      if (!summaryOnly) return [{ ...about, summary, prSnapshot: after }];
      return [{ ...about, summary, prInfo: pick(after, ["number", "title", "url", "state", "updatedAt"]) }];
    })
    .meta({
      ...prMonitor.meta,
      args: {
        repo: { ...OPTIONS.repo, description: "Repository (owner/repo)" },
        pr: { ...OPTIONS.pr, description: "PR number" },
        key: { ...OPTIONS.key, description: "State key override" },
        changesOnly: { type: "boolean", default: false, description: "Only output when changed" },
        summaryOnly: { type: "boolean", default: false, description: "Return compact summary" },
      },
    });
}
prMonitor.meta = {
  name: "github.pr.monitor",
  description: "Monitor PR state and detect changes",
  requires: ["gh"],
  args: { ...OPTIONS, changesOnly: { type: "boolean", default: false }, summaryOnly: { type: "boolean", default: false } },
};

/**
 * A message when a pull request has changed since the last time.
 *
 * @param {import("./github.d.ts").PrNotifyOptions} options
 * @returns {Lobster}
 */
export function prMonitorNotify(options) {
  const { repo, pr } = options;
  if (!repo) throw new Error("prMonitorNotify requires repo");
  if (!pr) throw new Error("prMonitorNotify requires pr");
  const key = options.key ?? `github.pr:${repo}#${pr}`;
  const kind = "github.pr.monitor.notify";
  return new Lobster({ signal: options.signal })
    .pipe(ghPrView({ repo, pr }))
    .pipe(diffLast(key, { changesOnly: true }))
    .pipe(([{ before, after, suppressed }]) => {
      if (suppressed) return [{ kind, suppressed: true }];
      const summary = changesOf(before, after);
      const message = messageOf(`${repo}#${Number(pr)}`, after, summary.changedFields);
      const prInfo = pick(after, ["number", "title", "url", "state"]);
      return [{ kind, changed: true, repo, pr: Number(pr), message, prInfo, summary }];
    })
    .meta(prMonitorNotify.meta);
}
prMonitorNotify.meta = {
  name: "github.pr.monitor.notify",
  description: "Emit a notification message when PR changes",
  requires: ["gh"],
  args: { ...OPTIONS },
};

/** @returns {never} */
function told(/** @type {unknown} */ error) {
  if (error instanceof NotFoundError) throw new Error("gh not found on PATH (install GitHub CLI)");
  if (error instanceof ExitError) throw new Error(`gh failed (${error.code}): ${error.said}`);
  throw error;
}

/** What is not the same in two snapshots. */
export function changesOf(/** @type {any} */ before, /** @type {any} */ after) {
  if (after === null || typeof after !== "object") return { changedFields: [], changes: {} };
  const isFirst = before === null || typeof before !== "object";
  const changed = TOLD.filter((field) => isFirst || JSON.stringify(before[field]) !== JSON.stringify(after[field]));
  const changes = changed.map((field) => [field, { from: isFirst ? null : before[field], to: after[field] }]);
  return { changedFields: changed, changes: Object.fromEntries(changes) };
}

/**
 * @param {string} name
 * @param {any} pr
 * @param {string[]} changed
 */
function messageOf(name, pr, changed) {
  const title = pr?.title ? `: ${pr.title}` : "";
  const fields = changed.length > 0 ? ` (${changed.join(", ")})` : "";
  const url = pr?.url ? ` ${pr.url}` : "";
  return `PR updated: ${name}${title}${fields}.${url}`.replace(/\s+/g, " ").trim();
}

/**
 * @param {any} from
 * @param {string[]} fields
 */
function pick(from, fields) {
  return Object.fromEntries(fields.map((field) => [field, from[field]]));
}
