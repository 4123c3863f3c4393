// Gives QuickJS in a built component a limit of its own stack. It is compiled without one for
// WebAssembly, so endless recursion would end the step; below this limit it is a RangeError that
// a script can catch.
//
//   node stack.mjs step-name.wasm
import { readFileSync, writeFileSync } from "node:fs";

// The lowest address that the engine's stack may reach: it begins at 1 MiB and grows towards 0.
const LIMIT = 128 << 10;
// Fields of QuickJS's JSRuntime, by their offsets: two lists, and the three figures of its stack.
const CONTEXTS = 80, DEAD = 96, STACK_SIZE = 120, STACK_TOP = 124, STACK_LIMIT = 128;
const CODE = { component: 0x1000d, module: 1 };

const unsigned = (value) => {
  const bytes = [];
  for (; value > 127; value = Math.floor(value / 128)) bytes.push((value & 127) | 128);
  return Buffer.from([...bytes, value]);
};

class Reader {
  constructor(bytes) { Object.assign(this, { bytes, at: 0 }); }
  byte() { return this.bytes[this.at++]; }
  leb(signed = false) {
    for (let value = 0n, shift = 0n; ;) {
      const byte = BigInt(this.byte());
      value |= (byte & 127n) << shift;
      shift += 7n;
      if (byte < 128n) return Number(signed ? BigInt.asIntN(Number(shift), value) : value);
    }
  }
  take(length) { return this.bytes.subarray(this.at, (this.at += length)); }
}

let patched = 0;

/** A component or a module with the limit in it. */
function patch(bytes) {
  const version = bytes.readUInt32LE(4);
  const reader = new Reader(bytes);
  const sections = [];
  reader.take(8);
  while (reader.at < bytes.length) {
    const id = reader.byte();
    sections.push({ id, body: reader.take(reader.leb()) });
  }
  if (version === CODE.module) patchModule(sections);
  if (version === CODE.component) {
    for (const section of sections) if (section.id === 1 || section.id === 4) section.body = patch(section.body);
  }
  const parts = sections.map(({ id, body }) => [Buffer.from([id]), unsigned(body.length), body]);
  return Buffer.concat([bytes.subarray(0, 8), ...parts.flat()]);
}

/** Adds a piece of data that sets the field, if the module holds the engine's memory. */
function patchModule(sections) {
  const data = sections.find(({ id }) => id === 11);
  if (!data) return;
  const reader = new Reader(data.body);
  const count = reader.leb();
  const rest = reader.at;
  const pieces = [];
  for (let piece = 0; piece < count; piece++) {
    const kind = reader.leb();
    if (kind === 2) reader.leb();
    let start;
    if (kind !== 1) {
      if (reader.byte() !== 0x41) return; // not at a fixed address: no snapshot
      start = reader.leb(true);
      reader.byte();
    }
    const content = reader.take(reader.leb());
    if (kind !== 1) pieces.push({ start, content });
  }
  if (pieces.length === 0) return;
  const memory = Buffer.alloc(Math.max(...pieces.map(({ start, content }) => start + content.length)) + 256);
  for (const { start, content } of pieces) content.copy(memory, start);
  const word = (at) => (at >= 0 && at + 4 <= memory.length ? memory.readUInt32LE(at) : -1);
  for (let at = 0; at + 256 < memory.length; at += 4) {
    const isRuntime = word(at + DEAD) === at + DEAD && word(at + DEAD + 4) === at + DEAD
      && word(word(at + CONTEXTS)) === at + CONTEXTS && word(at + STACK_SIZE) === 0 && word(at + STACK_LIMIT) === 0
      && word(at + STACK_TOP) > LIMIT && word(at + STACK_TOP) <= 1 << 20;
    if (!isRuntime) continue;
    // An address is a signed number here; its last group of 7 bits must not look negative.
    const address = unsigned(at + STACK_LIMIT);
    const padded = address.at(-1) & 64 ? Buffer.concat([address.subarray(0, -1), Buffer.from([address.at(-1) | 128, 0])]) : address;
    const limit = Buffer.alloc(4);
    limit.writeUInt32LE(LIMIT);
    data.body = Buffer.concat([unsigned(count + 1), data.body.subarray(rest), Buffer.from([0, 0x41]), padded, Buffer.from([0x0b, 4]), limit]);
    const counted = sections.find(({ id }) => id === 12);
    if (counted) counted.body = unsigned(count + 1);
    patched++;
  }
}

const [file] = process.argv.slice(2);
const result = patch(readFileSync(file));
if (patched !== 1) {
  console.error(`${file}: QuickJS was found ${patched} times in it, so its stack has no limit; this works with componentize-qjs 0.4.5`);
  process.exit(1);
}
writeFileSync(file, result);
