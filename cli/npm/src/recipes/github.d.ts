import type { Lobster, Stage } from "../sdk/index.js";

export interface PrNotifyOptions {
  /** `owner/name`. */
  repo: string;
  pr: number | string;
  /** The state key of the last snapshot; `github.pr:REPO#PR` by default. */
  key?: string;
  signal?: AbortSignal;
}

export interface PrMonitorOptions extends PrNotifyOptions {
  changesOnly?: boolean;
  summaryOnly?: boolean;
}

export interface PrViewOptions {
  repo: string;
  pr: number | string;
  fields?: string[];
}

export interface RecipeMeta {
  name: string;
  description: string;
  requires: string[];
  args: Record<string, object>;
}

export const prMonitor: { (options: PrMonitorOptions): Lobster; meta: RecipeMeta };
export const prMonitorNotify: { (options: PrNotifyOptions): Lobster; meta: RecipeMeta };
export function ghPrView(options: PrViewOptions): Stage;
