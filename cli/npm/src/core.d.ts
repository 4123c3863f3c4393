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
  /** Commands of your own, in pipelines and workflow files; those of `createDefaultRegistry` are the program's. */
  registry?: Registry;
  /** Model functions of this process, by the names of the providers that they are. */
  llmAdapters?: Record<string, LlmAdapter>;
}

/** A context with everything in it. */
export interface FullToolContext extends ToolContext {
  cwd: string;
  env: Record<string, string | undefined>;
  mode: "tool";
  registry: Registry;
}

/** What a run of one stage may use. */
export interface RunContext {
  cwd?: string;
  /** The whole environment; the process's by default. */
  env?: Record<string, string | undefined>;
  stateDir?: string;
  mode?: string;
  signal?: AbortSignal;
  forceTerminationSignal?: AbortSignal;
  llmAdapters?: ToolContext["llmAdapters"];
}

export type LlmInvoke = (call: { env: object; args: object; payload: any; ctx: object; signal: AbortSignal }) => unknown;
export type LlmAdapter = LlmInvoke | { source?: string; invoke: LlmInvoke };

/** Words under `_`, options under their names. */
export interface StageArgs {
  _: string[];
  [option: string]: any;
}

export interface PipelineStage {
  name: string;
  args: StageArgs;
  /** The text it was read from. */
  raw: string;
}

export type Items = AsyncIterable<any> | Iterable<any>;

export interface CommandContext extends RunContext {
  stdin?: any;
  stdout?: any;
  stderr?: any;
  registry?: Registry;
  render?: { json(items: unknown): void; lines(lines: unknown[]): void };
  requestInput?: RequestInput;
  /** Says that something was handed over, so that the step is not retried. */
  onNonRetryableSideEffect?(): void;
}

export interface CommandCall {
  input: Items;
  args: StageArgs;
  ctx: CommandContext;
}

export interface CommandResult {
  output?: any;
  /** Stops the pipeline; the output is its request. */
  halt?: boolean;
  rendered?: boolean;
}

export interface Command {
  name?: string;
  meta?: { description?: string; argsSchema?: object; sideEffects?: string[]; resumeSafeBeforeInput?: boolean; resumeSafeAfterInput?: boolean };
  help?(): string;
  run(call: CommandCall): Promise<CommandResult | undefined> | CommandResult | undefined;
}

export interface Registry {
  get(name: string): Command | undefined;
  list?(): string[];
}

export interface InputParams {
  prompt: string;
  /** JSON Schema of the answer. */
  responseSchema: unknown;
  defaults?: unknown;
  subject?: unknown;
  /** What the command needs to go on; its input is not read again then. */
  suspendedState?: unknown;
}

/** Asks a person; the command is called again with the answer. */
export interface RequestInput {
  (params: InputParams): Promise<any>;
  getSuspendedState(): any;
}

export interface PendingInput {
  requestIndex: number;
  metadata: { prompt: string; responseSchema: unknown; defaults?: unknown; subject?: unknown; signature: string };
  suspendedState?: unknown;
}

export interface CommandInput {
  pending: PendingInput;
  history: (PendingInput & { response: unknown })[];
}

export interface InputResume {
  state: CommandInput;
  response: unknown;
  consumed?: boolean;
}

export interface SuspendedRequest {
  type: "input_request";
  prompt: string;
  responseSchema: unknown;
  items: unknown[];
  commandInput: CommandInput;
}

/** Where a pipeline goes on after its question. */
export interface Place {
  next: number;
  items: unknown[];
  commandInput?: CommandInput;
}

export interface PipelineRequest extends CommandContext {
  pipeline: PipelineStage[];
  registry: Registry;
  input?: Items;
  dryRun?: boolean;
  haltAfterStageOnAbort?: boolean;
  requestInputResume?: InputResume;
  requestInputEnabled?: boolean;
}

export interface PipelineResult {
  items: any[];
  rendered: boolean;
  renderedItems: unknown[];
  halted: boolean;
  haltedAt: { index: number; stage: PipelineStage; inPlace?: boolean } | null;
  executionStarted: boolean;
}

/** What a token names. */
export interface ResumePayload {
  protocolVersion: 1;
  v: 1;
  kind: "pipeline-resume" | "workflow-file";
  stateKey: string;
}

export interface WorkflowRequest {
  filePath?: string;
  args?: unknown;
  ctx?: ToolContext;
  /** What `decodeResumeToken` gave, with an answer. */
  resume?: ResumePayload;
  approved?: boolean;
  response?: unknown;
  cancel?: boolean;
}

export interface WorkflowResult {
  status: "ok" | "needs_approval" | "needs_input" | "cancelled";
  output: unknown[];
  requiresApproval?: ApprovalRequest;
  requiresInput?: InputRequest;
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
  itemCount?: number;
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

/** The stages of a pipeline's text. */
export function parsePipeline(text: string): PipelineStage[];

/** The program's pipeline commands; a call of one is a run of the program. */
export function createDefaultRegistry(): Registry;

/** Runs the stages of a pipeline with the commands of a registry. */
export function runPipeline(request: PipelineRequest): Promise<PipelineResult>;

/** Runs a workflow file, or goes on with one; a failure is thrown. */
export function runWorkflowFile(request: WorkflowRequest): Promise<WorkflowResult>;

/** What a token names. One that carries its own state is refused. */
export function decodeResumeToken(token: string): ResumePayload;

/** The context of a tool call, with everything that is not given. */
export function createToolContext(ctx?: ToolContext): FullToolContext;
