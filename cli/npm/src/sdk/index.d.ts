import type { CommandContext, CommandInput, CommandResult, Items } from "../core.js";

export { runPipeline } from "../core.js";

/** A stage with a name that can be seen. */
export interface Stage {
  type?: string;
  run(call: { input: Items; ctx: CommandContext & { stateDir?: string } }): Promise<CommandResult | undefined> | CommandResult | undefined;
  [note: string]: unknown;
}

/** A function of the items, a generator over them, or a stage. */
export type StageLike = Stage | ((items: any, ctx: CommandContext & { stateDir?: string }) => any);

export interface LobsterOptions {
  /** The whole environment of what runs; the process's by default. */
  env?: Record<string, string | undefined>;
  stateDir?: string;
  /** Ends what runs, and waits for its end. */
  signal?: AbortSignal;
}

export interface LobsterResult {
  ok: boolean;
  status: "ok" | "needs_approval" | "needs_input" | "cancelled" | "error";
  output: any[];
  requiresApproval: { prompt: string; items: unknown[]; resumeToken: string; approvalId: string } | null;
  requiresInput: { prompt: string; responseSchema: unknown; defaults?: unknown; subject?: unknown; resumeToken: string } | null;
  error?: { type: string; message: string };
}

/** One answer: yes or no, a value, or the end of it all. */
export interface ResumeOptions {
  approved?: boolean;
  response?: unknown;
  cancel?: boolean;
}

/** What a question gives back when it is answered. */
export interface QuestionRecord {
  type: string;
  next: number;
  items: unknown[];
  stages: string[];
  commandInput?: CommandInput;
}

export class Lobster {
  constructor(options?: LobsterOptions);
  pipe(stage: StageLike): this;
  meta(meta: Record<string, unknown>): this;
  getMeta(): Record<string, unknown> | null;
  run(initialInput?: unknown[]): Promise<LobsterResult>;
  resume(token: string, options?: ResumeOptions): Promise<LobsterResult>;
  clone(): Lobster;
}

export interface ExecOptions {
  /** Whether the output is JSON, the default, or text. */
  json?: boolean;
  shell?: boolean;
  cwd?: string;
}

export interface ApproveOptions {
  prompt?: string;
  /** Whether the request shows the items, the default. They pass on either way. */
  preview?: boolean;
}

export interface DiffOptions {
  /** One item that says so, when nothing has changed. */
  changesOnly?: boolean;
}

export function exec(command: string, options?: ExecOptions): Stage;
export function shell(command: string, options?: ExecOptions): Stage;
export function approve(options?: ApproveOptions): Stage;
export function stateGet(key: string): Stage;
export function stateSet(key: string): Stage;
export const state: { get: typeof stateGet; set: typeof stateSet };
export function diffLast(key: string, options?: DiffOptions): Stage;
