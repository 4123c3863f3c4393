// TextEncoder and TextDecoder of the Encoding Standard, for UTF-8, UTF-16 and windows-1252 (which
// is what the standard means by latin1 and ascii).

import { define } from "./define.js";

const LABELS = {
  "utf-8": "utf-8 utf8 unicode-1-1-utf-8 unicode11utf8 unicode20utf8 x-unicode20utf8",
  "utf-16le": "utf-16le utf-16 ucs-2 unicode unicodefeff iso-10646-ucs-2 csunicode",
  "utf-16be": "utf-16be unicodefffe",
  "windows-1252":
    "windows-1252 latin1 iso-8859-1 iso8859-1 iso88591 iso_8859-1 iso_8859-1:1987 iso-ir-100 l1 csisolatin1 "
    + "ascii us-ascii ansi_x3.4-1968 cp1252 cp819 ibm819 x-cp1252",
};
const NAMES = new Map(Object.entries(LABELS).flatMap(([name, labels]) => labels.split(" ").map((label) => [label, name])));

/** What windows-1252 has at 0x80 to 0x9f. */
const WINDOWS_1252 =
  "\u20ac\x81\u201a\u0192\u201e\u2026\u2020\u2021\u02c6\u2030\u0160\u2039\u0152\x8d\u017d\x8f"
  + "\x90\u2018\u2019\u201c\u201d\u2022\u2013\u2014\u02dc\u2122\u0161\u203a\u0153\x9d\u017e\u0178";

/** Bytes that become text at once. */
const PIECE = 8192;
const fromCodes = String.fromCharCode;

class TextEncoder {
  get encoding() {
    return "utf-8";
  }

  encode(text = "") {
    text = String(text);
    const bytes = new Uint8Array(text.length * 3);
    return bytes.slice(0, write(text, bytes).written);
  }

  encodeInto(text, bytes) {
    if (!(bytes instanceof Uint8Array)) throw new TypeError("encodeInto takes a Uint8Array");
    return write(String(text), bytes);
  }
}

/** Writes whole characters of a text as long as there is room. */
function write(text, bytes) {
  const { length } = text;
  const room = bytes.length;
  let read = 0;
  let written = 0;
  while (read < length) {
    const unit = text.charCodeAt(read);
    if (unit < 0x80) {
      if (written >= room) break;
      bytes[written++] = unit;
    } else if (unit < 0x800) {
      if (written + 2 > room) break;
      bytes[written++] = 0xc0 | (unit >> 6);
      bytes[written++] = 0x80 | (unit & 0x3f);
    } else {
      let point = unit;
      if ((unit & 0xf800) === 0xd800) {
        const next = text.charCodeAt(read + 1);
        const isPair = unit < 0xdc00 && (next & 0xfc00) === 0xdc00;
        point = isPair ? 0x10000 + ((unit & 0x3ff) << 10) + (next & 0x3ff) : 0xfffd;
      }
      if (written + (point > 0xffff ? 4 : 3) > room) break;
      if (point > 0xffff) {
        bytes[written++] = 0xf0 | (point >> 18);
        bytes[written++] = 0x80 | ((point >> 12) & 0x3f);
        read++;
      } else {
        bytes[written++] = 0xe0 | (point >> 12);
      }
      bytes[written++] = 0x80 | ((point >> 6) & 0x3f);
      bytes[written++] = 0x80 | (point & 0x3f);
    }
    read++;
  }
  return { read, written };
}

class TextDecoder {
  #encoding;
  #isFatal;
  #keepsMark;
  /** What a call with `stream` left over. */
  #rest = [];
  #isBegun = false;

  constructor(label = "utf-8", { fatal = false, ignoreBOM = false } = {}) {
    this.#encoding = NAMES.get(String(label).replace(/^[\t\n\f\r ]+|[\t\n\f\r ]+$/g, "").toLowerCase());
    if (!this.#encoding) throw new RangeError(`the encoding ${label} is not known; there are utf-8, utf-16le, utf-16be and latin1`);
    this.#isFatal = Boolean(fatal);
    this.#keepsMark = Boolean(ignoreBOM);
  }

  get encoding() {
    return this.#encoding;
  }

  get fatal() {
    return this.#isFatal;
  }

  get ignoreBOM() {
    return this.#keepsMark;
  }

  decode(given, { stream = false } = {}) {
    let bytes = view(given);
    if (this.#rest.length > 0) {
      const joined = new Uint8Array(this.#rest.length + bytes.length);
      joined.set(this.#rest);
      joined.set(bytes, this.#rest.length);
      bytes = joined;
    }
    const decoder = this.#encoding === "utf-8" ? decodeUtf8 : this.#encoding === "windows-1252" ? decodeLatin : decodeUtf16;
    let decoded;
    try {
      decoded = decoder(bytes, stream, this.#isFatal, this.#encoding === "utf-16be");
    } catch (error) {
      this.#rest = [];
      this.#isBegun = false;
      throw error;
    }
    let [text, end] = decoded;
    this.#rest = Array.from(bytes.subarray(end));
    if (!this.#isBegun && text.length > 0) {
      if (!this.#keepsMark && this.#encoding !== "windows-1252" && text.charCodeAt(0) === 0xfeff) text = text.slice(1);
      this.#isBegun = true;
    }
    if (!stream) this.#isBegun = false;
    return text;
  }
}

function view(given) {
  if (given === undefined) return new Uint8Array(0);
  if (given instanceof Uint8Array) return given;
  if (ArrayBuffer.isView(given)) return new Uint8Array(given.buffer, given.byteOffset, given.byteLength);
  if (given instanceof ArrayBuffer || (typeof SharedArrayBuffer === "function" && given instanceof SharedArrayBuffer)) {
    return new Uint8Array(given);
  }
  throw new TypeError("decode takes an ArrayBuffer or a view of one");
}

function replace(isFatal) {
  if (isFatal) throw new TypeError("the bytes are not text of this encoding");
  return 0xfffd;
}

/** Each decoder gives the text and how many bytes it took; with `stream` it leaves what may go on. */
function decodeLatin(bytes) {
  let text = "";
  for (let at = 0; at < bytes.length; at += PIECE) text += fromCodes.apply(null, bytes.subarray(at, at + PIECE));
  return [text.replace(/[\x80-\x9f]/g, (byte) => WINDOWS_1252[byte.charCodeAt(0) - 0x80]), bytes.length];
}

function decodeUtf16(bytes, stream, isFatal, isBig) {
  const [high, low] = isBig ? [0, 1] : [1, 0];
  const even = bytes.length & ~1;
  let text = "";
  let at = 0;
  while (at < even) {
    const units = [];
    for (; at < even && units.length < PIECE; at += 2) {
      const unit = (bytes[at + high] << 8) | bytes[at + low];
      if ((unit & 0xf800) !== 0xd800) {
        units.push(unit);
        continue;
      }
      if (unit < 0xdc00 && at + 2 >= even && stream) return [text + fromCodes.apply(null, units), at];
      const next = at + 2 < even ? (bytes[at + 2 + high] << 8) | bytes[at + 2 + low] : 0;
      if (unit < 0xdc00 && (next & 0xfc00) === 0xdc00) {
        units.push(unit, next);
        at += 2;
      } else {
        units.push(replace(isFatal));
        // What is left of a byte at the end belongs to the same mistake.
        if (unit < 0xdc00 && at + 2 >= even && bytes.length > even) return [text + fromCodes.apply(null, units), bytes.length];
      }
    }
    text += fromCodes.apply(null, units);
  }
  if (even < bytes.length && !stream) return [text + fromCodes(replace(isFatal)), bytes.length];
  return [text, even];
}

function decodeUtf8(bytes, stream, isFatal) {
  let text = "";
  let at = 0;
  while (at < bytes.length) {
    let end = Math.min(at + PIECE, bytes.length);
    // Not within a character.
    for (let back = 1; back <= 3 && end - back > at; back++) {
      const byte = bytes[end - back];
      if (byte < 0x80) break;
      if (byte >= 0xc0) {
        if ((byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2) > back) end -= back;
        break;
      }
    }
    const plain = fromCodes.apply(null, bytes.subarray(at, end));
    if (/^[\0-\x7f]*$/.test(plain)) {
      text += plain;
      at = end;
      continue;
    }
    try {
      // Done by the engine itself, which takes no byte that is not UTF-8.
      text += decodeURIComponent(escape(plain));
      at = end;
    } catch {
      const [piece, to] = decodeByByte(bytes, at, end, stream, isFatal);
      text += piece;
      if (to < end) return [text, to];
      at = to;
    }
  }
  return [text, at];
}

/** The decoder of the standard, for what the engine does not take. */
function decodeByByte(bytes, from, end, stream, isFatal) {
  const units = [];
  let at = from;
  while (at < end) {
    const first = bytes[at];
    if (first < 0x80) {
      units.push(first);
      at++;
      continue;
    }
    const length = first < 0xc2 || first > 0xf4 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    let lower = first === 0xe0 ? 0xa0 : first === 0xf0 ? 0x90 : 0x80;
    let upper = first === 0xed ? 0x9f : first === 0xf4 ? 0x8f : 0xbf;
    let point = length === 2 ? first & 0x1f : length === 3 ? first & 0xf : first & 7;
    let taken = 1;
    while (taken < length && at + taken < bytes.length && bytes[at + taken] >= lower && bytes[at + taken] <= upper) {
      point = (point << 6) | (bytes[at + taken++] & 0x3f);
      lower = 0x80;
      upper = 0xbf;
    }
    if (taken < length && at + taken === bytes.length && stream) break;
    if (length === 0 || taken < length) units.push(replace(isFatal));
    else if (point > 0xffff) units.push(0xd7c0 + (point >> 10), 0xdc00 | (point & 0x3ff));
    else units.push(point);
    at += taken;
  }
  return [fromCodes.apply(null, units), at];
}

define({ TextEncoder, TextDecoder });
