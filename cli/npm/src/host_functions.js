// Functions of this process that the program calls during one request: `ctx.llmAdapters`, and the
// commands of `ctx.registry` that are not the program's own.
//
// The program reaches them over HTTP on loopback, with a bearer token of this request alone, at
// every depth: in pipelines, workflow files, sub-workflows and loops. Its steps cannot.

import { randomBytes, timingSafeEqual } from "node:crypto";
import { createServer } from "node:http";
import { Writable } from "node:stream";

import { message } from "./call.js";
import { jsonText } from "./json_text.js";
import { parsePipeline } from "./pipeline_text.js";
import { requestOf } from "./question.js";
import { commandNames, isProgramCommand } from "./registry.js";
import { runPipeline } from "./run_pipeline.js";

/** The variable that describes them to the program, which hides it from steps. */
const VARIABLE = "LOBSTER_HOST_FUNCTIONS";

/** Longest request that is read: prompts, artifacts and items of one call. */
const MAX_REQUEST_BYTES = 256 * 1024 * 1024;

/**
 * @typedef {object} Lent
 * @property {Record<string, string>} env  what the program needs to find them
 * @property {() => void} close
 */

/**
 * Opens the functions of a request to the program.
 *
 * @param {import("./core.d.ts").ToolContext} ctx
 * @param {import("./context.js").Context} made
 * @param {string | undefined} pipeline  the pipeline of the request
 * @returns {Promise<Lent | undefined>}
 */
export async function lendFunctions(ctx, made, pipeline) {
  const adapters = adaptersOf(ctx.llmAdapters);
  const commands = ctx.registry === undefined ? {} : commandsOf(ctx.registry, made.binary, pipeline);
  if (Object.keys(adapters).length + Object.keys(commands).length === 0) return undefined;
  const token = randomBytes(32).toString("hex");
  const gone = new AbortController();
  const server = createServer(async (request, response) => {
    const [kind, name] = (request.url ?? "").slice(1).split("/").map(decodeURIComponent);
    const isOpen = Object.hasOwn(kind === "adapter" ? adapters : kind === "command" ? commands : {}, name ?? "");
    if (request.method !== "POST" || !isOpen || !isBearer(request.headers.authorization, token)) {
      response.writeHead(404).end();
      return;
    }
    // The program closes the connection when the step's time is up or the run is cancelled.
    const ended = new AbortController();
    response.once("close", () => ended.abort(new Error("the step has ended")));
    const signal = AbortSignal.any([ended.signal, gone.signal, ...(made.signal ? [made.signal] : [])]);
    let said;
    try {
      const body = await read(request);
      const stepCtx = { ...contextOf(ctx, made, body), signal };
      said = jsonText(
        { answer: kind === "adapter" ? await invoke(name, body, stepCtx) : await run(name, body, stepCtx) },
        `the answer of the ${kind} ${name}`,
      );
    } catch (error) {
      said = jsonText({ threw: message(error) }, "the error");
    }
    response.writeHead(200, { "content-type": "application/json" });
    response.end(said);
  });
  await new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen(0, "127.0.0.1", () => resolve(undefined));
  });
  const { port } = /** @type {import("node:net").AddressInfo} */ (server.address());
  return {
    env: { [VARIABLE]: jsonText({ url: `http://127.0.0.1:${port}/`, token, commands, adapters }, "ctx.registry") },
    close() {
      gone.abort(new Error("the request has ended"));
      server.closeAllConnections();
      server.close();
    },
  };
}

/**
 * The adapters that can be called, with the sources of their answers. As in the incumbent, what is
 * no function is no adapter, and a provider of that name is unsupported once it is asked for.
 *
 * @param {unknown} adapters
 * @returns {Record<string, string>}
 */
function adaptersOf(adapters) {
  if (adapters === null || typeof adapters !== "object") return {};
  const usable = Object.entries(adapters).filter(([, adapter]) => invokerOf(adapter) !== undefined);
  return Object.fromEntries(usable.map(([name, adapter]) => [name, String(adapter.source ?? name)]));
}

/**
 * The commands of a registry that the program does not have or that stand in the place of its own,
 * with their descriptions. One that the registry hides is among them.
 *
 * @param {import("./core.d.ts").Registry} registry
 * @param {string} binary
 * @param {string | undefined} pipeline
 */
function commandsOf(registry, binary, pipeline) {
  if (typeof registry?.get !== "function") throw new Error("ctx.registry must have a function called get");
  const names = new Set([...commandNames(binary), ...(registry.list?.() ?? []), ...namesIn(pipeline)]);
  /** @type {Record<string, string>} */
  const commands = {};
  for (const name of names) {
    const command = registry.get(name);
    const isUnknown = command === undefined && !commandNames(binary).includes(name);
    if (!isUnknown && !isProgramCommand(name, command)) commands[name] = String(command?.meta?.description ?? "");
  }
  return commands;
}

/** The commands of a pipeline; none of text that cannot be read, which the program says. */
function namesIn(/** @type {string | undefined} */ pipeline) {
  try {
    return pipeline === undefined ? [] : parsePipeline(pipeline).map(({ name }) => name);
  } catch {
    return [];
  }
}

/**
 * Asks a model through an adapter.
 *
 * @param {string} name
 * @param {any} body
 * @param {any} ctx
 */
function invoke(name, { payload, args }, ctx) {
  const { env, signal } = ctx;
  return invokerOf(ctx.llmAdapters[name])?.({ env, args: argsOf(args), payload, ctx, signal });
}

/**
 * Calls a command. Its failure is an answer, because what it has dispatched by then counts.
 *
 * @param {string} name
 * @param {any} body
 * @param {any} ctx
 */
async function run(name, { input, args, resume }, ctx) {
  let shown = "";
  let isDispatched = false;
  const stdout = new Writable({
    decodeStrings: false,
    write(chunk, _encoding, done) {
      shown += chunk;
      done();
    },
  });
  try {
    const result = await runPipeline({
      ...ctx,
      stdout,
      pipeline: [{ name, args: argsOf(args), raw: name }],
      input,
      requestInputResume: resume ?? undefined,
      haltAfterStageOnAbort: true,
      onNonRetryableSideEffect: () => (isDispatched = true),
    });
    const request = requestOf(result);
    return {
      output: request ? [] : result.items,
      ...(request ? { request } : {}),
      ...(shown ? { shown, isList: result.renderedItems.length > 0 && isList(shown) } : {}),
      isDispatched,
    };
  } catch (error) {
    return { error: message(error), isDispatched };
  }
}

/**
 * What a function learns of the step: the environment of the request with what the plan sets, and its directory.
 *
 * @param {import("./core.d.ts").ToolContext} ctx
 * @param {import("./context.js").Context} made
 * @param {any} body
 */
function contextOf({ registry, llmAdapters, stdin }, made, { env, cwd }) {
  const { stderr, forceTerminationSignal, binary } = made;
  const stepEnv = { ...made.env, LOBSTER_BIN: binary, ...env };
  return { mode: "tool", cwd, env: stepEnv, stdin, stderr, forceTerminationSignal, registry, llmAdapters };
}

/** Without the earlier values of repeated options, which the incumbent forgets. */
function argsOf(/** @type {any} */ { "=": _earlier, ...args }) {
  return args;
}

/**
 * @param {any} adapter
 * @returns {((call: object) => unknown) | undefined}
 */
function invokerOf(adapter) {
  if (typeof adapter === "function") return (call) => adapter(call);
  if (typeof adapter?.invoke === "function") return (call) => adapter.invoke(call);
  return undefined;
}

/** Whether the text is a JSON list. */
function isList(/** @type {string} */ text) {
  try {
    return Array.isArray(JSON.parse(text));
  } catch {
    return false;
  }
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

/** @param {import("node:http").IncomingMessage} request */
async function read(request) {
  const chunks = [];
  let length = 0;
  for await (const chunk of request) {
    length += chunk.length;
    if (length > MAX_REQUEST_BYTES) throw new Error(`the request is larger than ${MAX_REQUEST_BYTES} bytes`);
    chunks.push(chunk);
  }
  return JSON.parse(Buffer.concat(chunks).toString("utf8"));
}
