// `ctx.requestInput`: a command's question to a person. The command is suspended by an exception
// and called again with the answer; what it had asked before is answered from the history.

/** Most questions that one command may ask. */
const MAX_HISTORY = 100;
/** Most items that are kept for the second call. */
const MAX_ITEMS = 1000;
const MAX_ITEM_BYTES = 1024 * 1024;

/** Thrown out of a command that waits for an answer. */
export class InputRequestSuspension extends Error {
  /**
   * @param {number} stageIndex
   * @param {import("./core.d.ts").SuspendedRequest} request
   */
  constructor(stageIndex, request) {
    super("Input request suspended");
    this.name = "InputRequestSuspension";
    this.stageIndex = stageIndex;
    this.request = request;
  }
}

/** An answer that is not one to what the command asks now. */
export class RequestMismatch extends Error {}

/**
 * The function that a command gets.
 *
 * @param {object} stage
 * @param {number} stage.index
 * @param {(() => unknown[]) | undefined} stage.items  its input as it was given, where that is known beforehand
 * @param {import("./core.d.ts").InputResume | undefined} stage.resume
 * @param {() => string | undefined} stage.refusal  why nothing can be asked any more
 * @returns {import("./core.d.ts").RequestInput}
 */
export function createRequestInput({ index, items, resume, refusal }) {
  let asked = 0;
  const history = [...(resume?.state.history ?? [])];

  /** @type {import("./core.d.ts").RequestInput} */
  const requestInput = async (params) => {
    const why = refusal();
    if (why) throw new Error(why);
    const metadata = metadataOf(params);
    const suspendedState = json(params.suspendedState, "suspendedState");
    const earlier = history[asked];
    if (earlier) {
      sameRequest(earlier, metadata, suspendedState);
      asked += 1;
      return json(earlier.response, "response");
    }
    if (resume && !resume.consumed) {
      sameRequest(resume.state.pending, metadata, suspendedState);
      resume.consumed = true;
      history.push({ requestIndex: asked, metadata, ...kept(suspendedState), response: json(resume.response, "response") });
      asked += 1;
      return json(resume.response, "response");
    }
    if (history.length >= MAX_HISTORY) throw new Error("requestInput replay history limit exceeded");
    if (!items && suspendedState === undefined) {
      throw new Error("requestInput requires suspendedState when command input is streaming");
    }
    const { signature: _, ...request } = metadata;
    throw new InputRequestSuspension(index, {
      type: "input_request",
      ...request,
      items: items ? items() : [],
      commandInput: { pending: { requestIndex: asked, metadata, ...kept(suspendedState) }, history },
    });
  };
  requestInput.getSuspendedState = () => {
    const pending = resume && !resume.consumed ? resume.state.pending : undefined;
    return json((history[asked] ?? pending)?.suspendedState, "suspendedState");
  };
  return requestInput;
}

/** Fails if an answer came for a question that the command did not ask. */
export function assertConsumed(/** @type {import("./core.d.ts").InputResume | undefined} */ resume) {
  if (resume && !resume.consumed) throw new Error("resume input response was not consumed by requestInput");
}

/** @param {import("./core.d.ts").InputParams} params */
function metadataOf(params) {
  if (params === null || typeof params !== "object") throw new Error("requestInput params must be an object");
  if (typeof params.prompt !== "string" || !params.prompt) throw new Error("requestInput prompt is required");
  if (params.responseSchema === undefined) throw new Error("requestInput responseSchema is required");
  const defaults = json(params.defaults, "defaults");
  const subject = json(params.subject, "subject");
  const request = {
    prompt: params.prompt,
    responseSchema: json(params.responseSchema, "responseSchema"),
    ...(defaults === undefined ? {} : { defaults }),
    ...(subject === undefined ? {} : { subject }),
  };
  return { ...request, signature: canonical(request) };
}

/**
 * @param {import("./core.d.ts").PendingInput} earlier
 * @param {{signature: string}} metadata
 * @param {unknown} suspendedState
 */
function sameRequest(earlier, metadata, suspendedState) {
  if (earlier.metadata.signature !== metadata.signature) {
    throw new RequestMismatch("requestInput metadata does not match suspended request");
  }
  if (canonical(earlier.suspendedState ?? null) !== canonical(suspendedState ?? null)) {
    throw new RequestMismatch("requestInput suspendedState does not match suspended request");
  }
}

/**
 * A command's input: it is closed when the command is done with it, and a list of items is kept as
 * it was before the command saw it, for the second call.
 *
 * @param {AsyncIterable<unknown> | Iterable<unknown>} stream
 */
export function trackInput(stream) {
  const known = Array.isArray(stream) ? stream : undefined;
  /** @type {string[]} */
  const kept = [];
  let bytes = 0;
  const keep = (/** @type {number} */ count) => {
    for (let at = kept.length; known && at < count && at <= MAX_ITEMS && bytes <= MAX_ITEM_BYTES; at += 1) {
      kept.push(JSON.stringify(known[at]) ?? "null");
      bytes += Buffer.byteLength(kept[at]);
    }
  };
  /** @type {AsyncIterator<unknown> | Iterator<unknown> | undefined} */
  let iterator;
  let done = false;
  const open = () => (iterator ??= Symbol.asyncIterator in stream ? stream[Symbol.asyncIterator]() : stream[Symbol.iterator]());
  async function* items() {
    for (let at = 1; ; at += 1) {
      const next = await open().next();
      done ||= Boolean(next.done);
      if (next.done) return;
      keep(at);
      yield next.value;
    }
  }
  return {
    items: items(),
    replay: known && (() => {
      keep(known.length);
      if (kept.length > MAX_ITEMS || bytes > MAX_ITEM_BYTES) throw new Error("requestInput replay limit exceeded");
      return kept.map((item) => JSON.parse(item));
    }),
    async close() {
      if (done || known) return;
      done = true;
      await open().return?.();
    },
  };
}

/** @param {unknown} suspendedState */
function kept(suspendedState) {
  return suspendedState === undefined ? {} : { suspendedState };
}

/**
 * A copy that is JSON and nothing else.
 *
 * @param {any} value
 * @param {string} what
 */
function json(value, what) {
  if (value === undefined) return undefined;
  const text = JSON.stringify(value);
  if (text === undefined) throw new Error(`requestInput ${what} must be JSON`);
  return JSON.parse(text);
}

/** JSON with the fields of objects in order. */
function canonical(/** @type {unknown} */ value) {
  return JSON.stringify(value, (_key, inner) => {
    const isMap = inner !== null && typeof inner === "object" && !Array.isArray(inner);
    return isMap ? Object.fromEntries(Object.entries(inner).sort(([a], [b]) => (a < b ? -1 : 1))) : inner;
  });
}
