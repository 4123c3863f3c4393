// `ctx.llmAdapters`: model functions of this process, lent to the program for one call.
//
// The program reaches them as it reaches any adapter of that provider: over HTTP,
// on loopback, with a bearer token that only this call knows.

import { randomBytes, timingSafeEqual } from "node:crypto";
import { createServer } from "node:http";

import { message } from "./call.js";

/** The variables that say where a provider's adapter is. @type {Record<string, [string, string]>} */
const VARIABLES = {
  pi: ["LOBSTER_PI_LLM_ADAPTER_URL", "LOBSTER_PI_LLM_ADAPTER_TOKEN"],
  http: ["LOBSTER_LLM_ADAPTER_URL", "LOBSTER_LLM_ADAPTER_TOKEN"],
};

/** Longest request that is read: prompts and artifacts of one call. */
const MAX_REQUEST_BYTES = 64 * 1024 * 1024;

/**
 * @typedef {object} Served
 * @property {Record<string, string>} env  what the program needs to find them
 * @property {() => void} close
 */

/**
 * Opens the adapters to the program.
 *
 * @param {unknown} adapters
 * @param {NodeJS.ProcessEnv} env
 * @param {AbortSignal | undefined} signal
 * @returns {Promise<Served | undefined>}
 */
export async function serveAdapters(adapters, env, signal) {
  if (adapters === undefined) return undefined;
  const functions = new Map(Object.entries(adapters ?? {}).map(([name, adapter]) => [name, invokerOf(name, adapter)]));
  if (functions.size === 0) return undefined;
  const token = randomBytes(32).toString("hex");
  const gone = new AbortController();
  const abort = () => gone.abort(signal?.reason);
  if (signal?.aborted) abort();
  signal?.addEventListener("abort", abort, { once: true });
  const server = createServer((request, response) => {
    const name = (request.url ?? "").slice(1);
    const invoke = functions.get(name);
    if (request.method !== "POST" || !invoke || !isBearer(request.headers.authorization, token)) {
      response.writeHead(404).end();
      return;
    }
    reply(request, (payload) => invoke({ env, args: {}, payload, ctx: { env, signal: gone.signal }, signal: gone.signal }))
      .catch((error) => ({ ok: false, error: { message: message(error) } }))
      .then((answer) => {
        response.writeHead(200, { "content-type": "application/json" });
        response.end(JSON.stringify(answer));
      });
  });
  await new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen(0, "127.0.0.1", () => resolve(undefined));
  });
  const { port } = /** @type {import("node:net").AddressInfo} */ (server.address());
  /** @type {Record<string, string>} */
  const told = {};
  for (const name of functions.keys()) {
    const [url, key] = VARIABLES[name];
    told[url] = `http://127.0.0.1:${port}/${name}`;
    told[key] = token;
  }
  const [only] = functions.keys();
  // As in the incumbent: the only adapter is the provider, unless one is named.
  if (functions.size === 1 && !env.LOBSTER_LLM_PROVIDER?.trim()) told.LOBSTER_LLM_PROVIDER = only;
  return {
    env: told,
    close() {
      signal?.removeEventListener("abort", abort);
      gone.abort(new Error("the call has ended"));
      server.closeAllConnections();
      server.close();
    },
  };
}

/**
 * @param {string} name
 * @param {unknown} adapter
 * @returns {(call: object) => unknown}
 */
function invokerOf(name, adapter) {
  if (!Object.hasOwn(VARIABLES, name)) {
    throw new Error(
      `ctx.llmAdapters.${name} cannot be used: lobster runs as a program of its own and reaches adapters named ` +
        `${Object.keys(VARIABLES).join(" and ")} in this process`,
    );
  }
  if (typeof adapter === "function") return (call) => adapter(call);
  const invoke = /** @type {{invoke?: unknown} | null} */ (adapter)?.invoke;
  if (typeof invoke === "function") return (call) => invoke.call(adapter, call);
  throw new Error(`ctx.llmAdapters.${name} must be a function or have one called invoke`);
}

/**
 * @param {string | undefined} header
 * @param {string} token
 */
function isBearer(header, token) {
  const given = Buffer.from(header ?? "");
  const wanted = Buffer.from(`Bearer ${token}`);
  return given.length === wanted.length && timingSafeEqual(given, wanted);
}

/**
 * @param {import("node:http").IncomingMessage} request
 * @param {(payload: unknown) => unknown} invoke
 */
async function reply(request, invoke) {
  const chunks = [];
  let length = 0;
  for await (const chunk of request) {
    length += chunk.length;
    if (length > MAX_REQUEST_BYTES) throw new Error(`the request is larger than ${MAX_REQUEST_BYTES} bytes`);
    chunks.push(chunk);
  }
  return invoke(JSON.parse(Buffer.concat(chunks).toString("utf8")));
}
