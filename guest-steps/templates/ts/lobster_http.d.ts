// The types of lobster_http.js.

export interface Asked {
  /** `GET` if left out. */
  method?: string;
  headers?: Record<string, string>;
  /** Text, bytes, or a value that is sent as JSON. */
  body?: unknown;
  /** How long the connection, and then the beginning of the answer, may take. */
  timeoutMs?: number;
}

/** What a host answered, of any status. */
export interface Answer {
  readonly status: number;
  readonly ok: boolean;
  /** Values by name in lower case; those of one name are joined by ", ". */
  readonly headers: Record<string, string>;
  bytes(): Uint8Array;
  text(): string;
  json(): unknown;
}

/**
 * Makes one request and waits for the whole answer. Redirects are not followed. What is
 * refused, or fails before there is an answer, is the StepError `http`.
 */
export function request(url: string, asked?: Asked): Answer;
