// JSON for the program.

import { message } from "./call.js";

/** A value that cannot be written as JSON. */
export class NotJson extends Error {}

/**
 * The value as JSON text. Half a surrogate pair, which JavaScript cuts emoji into, becomes U+FFFD.
 *
 * @param {unknown} value
 * @param {string} name
 */
export function jsonText(value, name) {
  let json;
  try {
    json = JSON.stringify(value, wellFormed);
  } catch (error) {
    throw new NotJson(`${name} cannot be written as JSON: ${message(error)}`);
  }
  if (json === undefined) throw new NotJson(`${name} cannot be written as JSON`);
  return json;
}

/**
 * @param {string} _key
 * @param {unknown} value
 */
function wellFormed(_key, value) {
  if (typeof value === "string") return value.toWellFormed();
  const isMap = value !== null && typeof value === "object" && !Array.isArray(value);
  if (!isMap || Object.keys(value).every((name) => name.isWellFormed())) return value;
  return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name.toWellFormed(), inner]));
}
