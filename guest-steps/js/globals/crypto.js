// `crypto` with random bytes that depend on nothing but what the step is given: the same call gives
// the same bytes. They are no secrets.

import { define } from "./define.js";

let state = [0, 0, 0, 0];
/** Gives the text that the bytes depend on, once they are asked for. */
let asked = () => "";

/** Begins anew, from a text that is asked for when the first byte is. */
export function seedCrypto(text) {
  asked = text;
}

function begin() {
  const text = String(asked());
  asked = undefined;
  // 128 bits by four rounds of FNV-1a, each over all of it.
  state = [0x811c9dc5, 0x9e3779b9, 0x85ebca6b, 0xc2b2ae35];
  let [a, b, c, d] = state;
  for (let at = 0; at < text.length; at++) {
    const unit = text.charCodeAt(at);
    a = Math.imul(a ^ unit, 0x01000193);
    b = Math.imul(b ^ unit ^ (a >>> 15), 0x01000193);
    c = Math.imul(c ^ unit ^ (b >>> 13), 0x01000193);
    d = Math.imul(d ^ unit ^ (c >>> 11), 0x01000193);
  }
  state = [a, b, c, d];
  for (let round = 0; round < 16; round++) next();
}

/** 32 random bits, by sfc32. */
function next() {
  if (asked) begin();
  let [a, b, c, d] = state;
  const sum = (a + b + d) | 0;
  d = (d + 1) | 0;
  a = b ^ (b >>> 9);
  b = (c + (c << 3)) | 0;
  c = ((c << 21) | (c >>> 11)) + sum | 0;
  state = [a, b, c, d];
  return sum >>> 0;
}

/** A number from 0 to 1, with 53 random bits. */
export function nextFraction() {
  return ((next() >>> 5) * 67108864 + (next() >>> 6)) / 9007199254740992;
}

const INTEGERS = [
  Int8Array, Uint8Array, Uint8ClampedArray, Int16Array, Uint16Array, Int32Array, Uint32Array, BigInt64Array, BigUint64Array,
];
const MOST = 65536;

class Crypto {
  getRandomValues(array) {
    if (!INTEGERS.some((kind) => array instanceof kind)) {
      throw new DOMException("getRandomValues takes an array of integers", "TypeMismatchError");
    }
    if (array.byteLength > MOST) throw new DOMException(`getRandomValues gives ${MOST} bytes at most`, "QuotaExceededError");
    const bytes = new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
    for (let at = 0; at < bytes.length; at += 4) {
      const bits = next();
      for (let byte = 0; byte < 4 && at + byte < bytes.length; byte++) bytes[at + byte] = bits >>> (8 * byte);
    }
    return array;
  }

  randomUUID() {
    const bytes = this.getRandomValues(new Uint8Array(16));
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
    return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join("-");
  }
}

define({ Crypto, crypto: new Crypto() });
