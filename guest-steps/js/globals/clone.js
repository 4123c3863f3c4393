// structuredClone. The engine has DOMException itself.

import { define } from "./define.js";

const ERRORS = { EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError };

function fail(value) {
  const what = typeof value === "symbol" ? "a symbol" : typeof value === "function" ? "a function" : "this object";
  throw new DOMException(`${what} cannot be cloned`, "DataCloneError");
}

function clone(value, known) {
  if (typeof value === "function" || typeof value === "symbol") fail(value);
  if (value === null || typeof value !== "object") return value;
  if (known.has(value)) return known.get(value);
  const keep = (made) => {
    known.set(value, made);
    return made;
  };
  for (const kind of [Boolean, Number, String, BigInt]) if (value instanceof kind) return keep(Object(value.valueOf()));
  if (value instanceof Date) return keep(new Date(value.getTime()));
  if (value instanceof RegExp) return keep(new RegExp(value.source, value.flags));
  if (value instanceof ArrayBuffer) return keep(value.slice(0));
  if (ArrayBuffer.isView(value)) {
    const length = value instanceof DataView ? value.byteLength : value.length;
    return keep(new value.constructor(clone(value.buffer, known), value.byteOffset, length));
  }
  if (value instanceof Map) {
    const made = keep(new Map());
    for (const [key, item] of [...value]) made.set(clone(key, known), clone(item, known));
    return made;
  }
  if (value instanceof Set) {
    const made = keep(new Set());
    for (const item of [...value]) made.add(clone(item, known));
    return made;
  }
  if (value instanceof Error) {
    const made = keep(new (ERRORS[value.name] ?? Error)(value.message));
    const define = (name, item) => Object.defineProperty(made, name, { value: item, writable: true, configurable: true });
    define("stack", value.stack);
    if (Object.hasOwn(value, "cause")) define("cause", clone(value.cause, known));
    return made;
  }
  for (const kind of [Promise, WeakMap, WeakSet, WeakRef]) if (value instanceof kind) fail(value);
  const made = keep(Array.isArray(value) ? new Array(value.length) : {});
  for (const key of Object.keys(value)) {
    const item = clone(value[key], known);
    Object.defineProperty(made, key, { value: item, writable: true, configurable: true, enumerable: true });
  }
  return made;
}

function structuredClone(value, { transfer = [] } = {}) {
  for (const item of transfer) if (!(item instanceof ArrayBuffer)) fail(item);
  const made = clone(value, new Map());
  for (const item of transfer) item.transfer?.();
  return made;
}

define({ structuredClone });
