// Reads text and uses what the template adds to the engine.

import { step } from "./lobster.js";

const MODES = {
  lines: (input) => [...input.lines()],
  text: (input) => input.text(),
  globals: () => [
    new TextDecoder("latin1").decode(new TextEncoder().encode("ü")),
    new URL("../b?x=1", "https://example.com/a/c").href,
    structuredClone(new Map([["a", new Date(5)]])).get("a").getTime(),
    typeof queueMicrotask,
  ],
  // The same for the same call; another input gives others.
  random(input) {
    const first = [...input.items()];
    console.log("read", first.length);
    return [first.length, crypto.randomUUID(), Math.random()];
  },
};

export const { describe, run } = step({
  name: "globals",
  version: "0.1.0",
  summary: "Reads text",
  args: { type: "object", required: ["mode"], properties: { mode: { enum: Object.keys(MODES) } } },
  run(args, input, output) {
    output.emit(MODES[args.mode](input));
  },
});
