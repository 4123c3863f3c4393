// HTTP requests to hosts that the step is granted. A step that imports this module is built
// for the world step-http; its description asks for the hosts:
//
//   wants: [{ net: "api.example:443", reason: "to read the weather" }]

import { fetch } from "lobster:step/http@0.1.0";
import { StepError } from "./lobster.js";

/** What a host answered. */
class Answer {
  #bytes;

  constructor({ status, headers, body }) {
    this.status = status;
    /** Values by name in lower case; those of one name are joined by ", ". */
    this.headers = {};
    for (const [name, value] of headers) {
      this.headers[name] = name in this.headers ? `${this.headers[name]}, ${value}` : value;
    }
    this.#bytes = Uint8Array.from(body);
  }

  get ok() {
    return this.status >= 200 && this.status < 300;
  }

  bytes() {
    return this.#bytes;
  }

  text() {
    return fromUtf8(this.#bytes);
  }

  json() {
    return JSON.parse(this.text());
  }
}

/**
 * Makes one request and waits for the whole answer. Redirects are not followed.
 *
 * `body` is text, bytes, or a value that is sent as JSON. What is refused, or fails before
 * there is an answer, is the StepError `http`; an answer of any status is an answer.
 */
export function request(url, { method = "GET", headers = {}, body, timeoutMs } = {}) {
  const sent = Object.entries(headers).map(([name, value]) => [name, String(value)]);
  if (isJson(body)) {
    body = JSON.stringify(body);
    if (!sent.some(([name]) => name.toLowerCase() === "content-type")) sent.push(["content-type", "application/json"]);
  }
  const bytes = typeof body === "string" ? toUtf8(body) : (body ?? []);
  try {
    return new Answer(fetch({ method, url, headers: sent, body: bytes, timeoutMs }));
  } catch (error) {
    const said = error?.payload ?? error;
    if (typeof said?.code !== "string") throw error;
    throw new StepError("http", `${method} ${url}: ${said.code}: ${said.message}`, { retryable: said.retryable });
  }
}

function isJson(body) {
  return body !== undefined && body !== null && typeof body !== "string" && !(body instanceof Uint8Array);
}

function toUtf8(text) {
  const bytes = [];
  for (const character of text) {
    const code = character.codePointAt(0);
    if (code < 0x80) bytes.push(code);
    else if (code < 0x800) bytes.push(0xc0 | (code >> 6), 0x80 | (code & 63));
    else if (code < 0x10000) bytes.push(0xe0 | (code >> 12), 0x80 | ((code >> 6) & 63), 0x80 | (code & 63));
    else bytes.push(0xf0 | (code >> 18), 0x80 | ((code >> 12) & 63), 0x80 | ((code >> 6) & 63), 0x80 | (code & 63));
  }
  return Uint8Array.from(bytes);
}

/** What is not UTF-8 becomes U+FFFD, one for each byte. */
function fromUtf8(bytes) {
  let text = "";
  for (let at = 0; at < bytes.length; ) {
    const [code, length] = decoded(bytes, at);
    text += String.fromCodePoint(code);
    at += length;
  }
  return text;
}

const LEAST = [0, 0, 0x80, 0x800, 0x10000];
const REPLACEMENT = [0xfffd, 1];

function decoded(bytes, at) {
  const first = bytes[at];
  if (first < 0x80) return [first, 1];
  const length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || at + length > bytes.length) return REPLACEMENT;
  let code = first & (0x7f >> length);
  for (let more = 1; more < length; more += 1) {
    const byte = bytes[at + more];
    if (byte >> 6 !== 2) return REPLACEMENT;
    code = (code << 6) | (byte & 63);
  }
  const surrogate = code >= 0xd800 && code <= 0xdfff;
  return code < LEAST[length] || code > 0x10ffff || surrogate ? REPLACEMENT : [code, length];
}
