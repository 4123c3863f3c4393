/** What of the caller's process a call may use. Everything has a default. */
export interface ToolContext {
  /** Where relative paths start; the process's directory by default. */
  cwd?: string;
  /** Variables over those of the process. */
  env?: Record<string, string | undefined>;
  /** Must be `"tool"` if it is given. */
  mode?: string;
  /** Never read: in tool mode nobody is asked on stdin. */
  stdin?: unknown;
  /** Never written: the envelope is the return value, and what commands show is its output. */
  stdout?: unknown;
  /** Hears warnings and retries. */
  stderr?: NodeJS.WritableStream;
  /** Ends the run and everything it started; the journal says so. */
  signal?: AbortSignal;
  /** Ends it at once. */
  forceTerminationSignal?: AbortSignal;
  limits?: {
    /** Ends the run after so long. */
    timeoutMs?: number;
    /** Largest envelope; 128 MiB by default. */
    maxStdoutBytes?: number;
  };
  /** Refused: functions of this process cannot reach the program. */
  registry?: never;
  /** Refused, as `registry`. */
  llmAdapters?: never;
}

export interface RunRequest {
  /** Pipeline text; or `filePath`. */
  pipeline?: string;
  /** A workflow file. */
  filePath?: string;
  /** Arguments of the workflow file, an object. */
  args?: unknown;
  ctx?: ToolContext;
}

export interface ResumeRequest {
  /** The `resumeToken` of an envelope; or `approvalId`. */
  token?: string;
  /** The short id of an approval; counts before the token. */
  approvalId?: string;
  approved?: boolean;
  /** The answer to an input request. */
  response?: unknown;
  /** Calls the whole run off. */
  cancel?: boolean;
  ctx?: ToolContext;
}

export interface ApprovalRequest {
  type: "approval_request";
  prompt: string;
  items: unknown[];
  preview?: string;
  resumeToken: string;
  approvalId: string;
  initiatedBy?: string;
  requiredApprover?: string;
  requireDifferentApprover?: boolean;
}

export interface InputRequest {
  type: "input_request";
  prompt: string;
  responseSchema: unknown;
  defaults?: unknown;
  subject?: unknown;
  resumeToken: string;
}

export type Envelope =
  | {
      protocolVersion: 1;
      ok: true;
      status: "ok" | "needs_approval" | "needs_input" | "cancelled";
      output: unknown[];
      requiresApproval: ApprovalRequest | null;
      requiresInput: InputRequest | null;
    }
  | { protocolVersion: 1; ok: false; error: { type: string; message: string } };

/** Runs a pipeline or a workflow file to its end or its first question. */
export function runToolRequest(request: RunRequest): Promise<Envelope>;

/** Answers a question and goes on with its run. */
export function resumeToolRequest(request: ResumeRequest): Promise<Envelope>;

/** The program to run: `LOBSTER_BIN`, else `lobster` on `PATH`, else the optional platform package. */
export function findBinary(env?: Record<string, string | undefined>): string;

/** The name of the optional package that carries the program for this machine. */
export const PLATFORM_PACKAGE: string;
