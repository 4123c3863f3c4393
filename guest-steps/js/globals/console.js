// A console that goes to the step's log.

import * as host from "lobster:step/host@0.1.0";
import { define } from "./define.js";

/** A value for people: text as it is, anything else as JSON if it can be. */
export function describeValue(value) {
  if (typeof value === "function") return "a function";
  if (typeof value === "symbol") return "a symbol";
  if (value === undefined) return "undefined";
  try {
    return JSON.stringify(value) ?? String(value);
  } catch {
    return String(value);
  }
}

function shown(value) {
  if (typeof value === "string") return value;
  if (value instanceof Error) return [String(value), String(value.stack ?? "").trimEnd()].filter(Boolean).join("\n");
  if (value instanceof Map || value instanceof Set) return `${value.constructor.name} ${describeValue([...value])}`;
  return describeValue(value);
}

/** The words of a call, with `%s` and its like in the first one filled in. */
function line(words) {
  let rest = words;
  let first = [];
  if (typeof words[0] === "string" && words.length > 1 && words[0].includes("%")) {
    rest = words.slice(1);
    first = [
      words[0].replace(/%[sdifjoOc%]/g, (mark) => {
        if (mark === "%%") return "%";
        if (rest.length === 0) return mark;
        const word = rest.shift();
        if (mark === "%c") return "";
        if (mark === "%d" || mark === "%f") return String(Number(word));
        return mark === "%i" ? String(Number.parseInt(word, 10)) : shown(word);
      }),
    ];
  }
  return [...first, ...rest.map(shown)].join(" ");
}

let indent = "";
const counts = new Map();
const say = (level, text) => host.log(level, indent + text, "");
const level = (name) => (...words) => say(name, line(words));

const console = {
  log: level("info"),
  info: level("info"),
  warn: level("warn"),
  error: level("error"),
  debug: level("debug"),
  trace: level("trace"),
  dir: (value) => say("info", shown(value)),
  table: (value) => say("info", shown(value)),
  assert(holds, ...words) {
    if (!holds) say("error", ["Assertion failed", line(words)].filter(Boolean).join(": "));
  },
  count(label = "default") {
    counts.set(label, (counts.get(label) ?? 0) + 1);
    say("info", `${label}: ${counts.get(label)}`);
  },
  countReset: (label = "default") => void counts.delete(label),
  group(...words) {
    if (words.length > 0) say("info", line(words));
    indent += "  ";
  },
  groupEnd() {
    indent = indent.slice(2);
  },
  // There is no clock to measure with.
  time() {},
  timeLog() {},
  timeEnd() {},
};
console.groupCollapsed = console.group;

define({ console });
