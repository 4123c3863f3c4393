// The types of globals.js, and of what the engine has beyond the language.

interface Console {
  log(...words: unknown[]): void;
  info(...words: unknown[]): void;
  warn(...words: unknown[]): void;
  error(...words: unknown[]): void;
  debug(...words: unknown[]): void;
  trace(...words: unknown[]): void;
  dir(value: unknown): void;
  table(value: unknown): void;
  assert(holds?: boolean, ...words: unknown[]): void;
  count(label?: string): void;
  countReset(label?: string): void;
  group(...words: unknown[]): void;
  groupCollapsed(...words: unknown[]): void;
  groupEnd(): void;
}
/** Goes to the step's log. */
declare var console: Console;

declare class TextEncoder {
  readonly encoding: "utf-8";
  encode(text?: string): Uint8Array;
  encodeInto(text: string, bytes: Uint8Array): { read: number; written: number };
}

/** For utf-8, utf-16le, utf-16be and windows-1252 (latin1). */
declare class TextDecoder {
  constructor(label?: string, options?: { fatal?: boolean; ignoreBOM?: boolean });
  readonly encoding: string;
  readonly fatal: boolean;
  readonly ignoreBOM: boolean;
  decode(bytes?: ArrayBuffer | ArrayBufferView, options?: { stream?: boolean }): string;
}

declare class URL {
  constructor(url: string | URL, base?: string | URL);
  static canParse(url: string | URL, base?: string | URL): boolean;
  static parse(url: string | URL, base?: string | URL): URL | null;
  href: string;
  readonly origin: string;
  protocol: string;
  username: string;
  password: string;
  host: string;
  hostname: string;
  port: string;
  pathname: string;
  search: string;
  readonly searchParams: URLSearchParams;
  hash: string;
  toJSON(): string;
}

declare class URLSearchParams implements Iterable<[string, string]> {
  constructor(init?: string | URLSearchParams | Record<string, string> | Iterable<[string, string]>);
  readonly size: number;
  append(name: string, value: string): void;
  delete(name: string, value?: string): void;
  get(name: string): string | null;
  getAll(name: string): string[];
  has(name: string, value?: string): boolean;
  set(name: string, value: string): void;
  sort(): void;
  forEach(call: (value: string, name: string, all: URLSearchParams) => void): void;
  entries(): IterableIterator<[string, string]>;
  keys(): IterableIterator<string>;
  values(): IterableIterator<string>;
  [Symbol.iterator](): IterableIterator<[string, string]>;
}

declare class DOMException extends Error {
  constructor(message?: string, name?: string);
  readonly code: number;
}

declare function structuredClone<T>(value: T, options?: { transfer?: ArrayBuffer[] }): T;
declare function queueMicrotask(call: () => void): void;

/** The same call of the step gives the same values: they are no secrets. */
declare var crypto: {
  getRandomValues<T extends ArrayBufferView>(array: T): T;
  randomUUID(): string;
};
