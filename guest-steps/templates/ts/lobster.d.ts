// The types of lobster.js.

/** A JSON Schema. */
export type Schema = Record<string, unknown> | boolean;

/** What a step asks for, with the reason that the person reads who decides. */
export type Want = { reason: string; optional?: boolean } & (
  | { read: string }
  | { write: string }
  | { env: string }
  | { net: string }
  | { clock: true }
  | { random: true }
);

/** The limits that the step was made for. */
export interface Limits {
  fuel?: number;
  memory?: number;
  output?: number;
  timeoutMs?: number;
}

export interface Example {
  summary: string;
  args?: unknown;
  input?: string;
  output?: string;
}

export interface Given<Args, In, Out> {
  name: string;
  version: string;
  summary: string;
  args?: Schema;
  /** Of one item; left out for bytes. */
  input?: Schema;
  output?: Schema;
  wants?: Want[];
  limits?: Limits;
  examples?: Example[];
  run(args: Args, input: Input<In>, output: Output<Out>): void;
}

/** Makes the two functions of the contract from one description. */
export function step<Args = unknown, In = unknown, Out = unknown>(
  given: Given<Args, In, Out>,
): { describe: () => unknown; run: (args: string, input: unknown, output: unknown) => void };

/** How a step says that it failed. `code` is for programs: words joined by dashes. */
export class StepError extends Error {
  constructor(code: string, message: string, options?: { retryable?: boolean });
  readonly code: string;
  readonly retryable: boolean;
}

export interface Input<In> {
  /** `empty` (none at all), `bytes` or `items`. */
  readonly kind: "empty" | "bytes" | "items";
  /** The items, one after the other. Bytes are one text item. */
  items(): IterableIterator<In>;
  /** The bytes in chunks; items come as JSON Lines. */
  bytes(): IterableIterator<Uint8Array>;
  /** All of the input as text (UTF-8); items come as JSON Lines. */
  text(): string;
  /** The lines of the text, without what ends them. */
  lines(): IterableIterator<string>;
}

export interface Output<Out> {
  /** Gives one item. A step gives items or bytes, not both. */
  emit(item: Out): void;
  /** Gives bytes. */
  write(bytes: Uint8Array): void;
  /** Hands on what is still buffered; done for you at the end. */
  flush(): void;
}

/** A line in the step's log. */
export function log(level: "trace" | "debug" | "info" | "warn" | "error", message: string, fields?: object): void;

/** How far the step is, for the person who waits. */
export function progress(done: number, total?: number, message?: string): void;

/** A value kept for the rest of the run. */
export const state: { get(key: string): unknown; set(key: string, value: unknown): void };
