// Resume tokens: base64url of JSON that names an approval or input request. They carry no state.

/**
 * What a token names.
 *
 * @param {string} token
 * @returns {import("./core.d.ts").ResumePayload}
 * @throws {Error} when it is none, or one that carries its own state
 */
export function decodeResumeToken(token) {
  const payload = decodeToken(token);
  if (payload.protocolVersion !== 1) throw new Error("Unsupported protocol version");
  if (payload.v !== 1) throw new Error("Unsupported token version");
  const { kind, stateKey } = payload;
  const named = typeof stateKey === "string" && stateKey.length > 0;
  if (kind === "workflow-file" && named) return { protocolVersion: 1, v: 1, kind, stateKey };
  if (kind === "workflow-file") {
    const carries = payload.filePath !== undefined && payload.resumeAtIndex !== undefined;
    throw new Error(carries ? `Invalid workflow token: ${CARRIES_STATE}` : "Invalid workflow token");
  }
  if (kind === "pipeline-resume" && named) return { protocolVersion: 1, v: 1, kind, stateKey };
  if (kind === undefined && typeof payload.resumeAtIndex === "number") {
    throw new Error(
      `this token was made by the SDK of @clawdbot/lobster, and ${CARRIES_STATE}; answer it with that package`,
    );
  }
  throw new Error("Invalid token");
}

const CARRIES_STATE = "it carries its own state, which anyone could have written; run the workflow again to get one that only names its question";

/**
 * The token of a payload that {@link decodeResumeToken} gave.
 *
 * @param {import("./core.d.ts").ResumePayload} payload
 */
export function encodeToken(payload) {
  return Buffer.from(JSON.stringify(payload), "utf8").toString("base64url");
}

/**
 * @param {unknown} token
 * @returns {Record<string, unknown>}
 */
export function decodeToken(token) {
  try {
    const payload = JSON.parse(Buffer.from(String(token), "base64url").toString("utf8"));
    if (payload !== null && typeof payload === "object") return payload;
  } catch {
    // Told below.
  }
  throw new Error("Invalid token");
}
