// Pipeline text: `parsePipeline` reads it as the program does, `pipelineWord` writes it.

/**
 * The stages of a pipeline.
 *
 * @param {string} text
 * @returns {import("./core.d.ts").PipelineStage[]}
 * @throws {Error} when it is no pipeline
 */
export function parsePipeline(text) {
  const stages = stageTexts(String(text));
  if (stages.length === 0) throw new Error("Empty pipeline");
  return stages.map((raw) => {
    const [name, ...words] = commandWords(raw);
    if (name === undefined) throw new Error("Empty command stage");
    // The JSON switch of exec must not take the program for its value.
    return { name, args: stageArgs(words, name === "exec" ? ["json"] : []), raw };
  });
}

/** The text between the bars that stand in no quotes. */
function stageTexts(/** @type {string} */ text) {
  const stages = [];
  let start = 0;
  let quote = "";
  for (let at = 0; at < text.length; at += 1) {
    const char = text[at];
    if (quote && char === "\\") at += 1;
    else if (quote) quote = char === quote ? "" : quote;
    else if (char === '"' || char === "'") quote = char;
    else if (char === "|") {
      stages.push(text.slice(start, at).trim());
      start = at + 1;
    }
  }
  if (quote) throw new Error("Unclosed quote");
  const last = text.slice(start).trim();
  return last ? [...stages, last] : stages;
}

/**
 * The words of a command. Quoted empty words are words.
 *
 * @param {string} text
 * @param {"pipeline" | "sdk"} [dialect]  in the SDK's command strings a backslash in quotes makes
 *   any character literal, lines do not end words, and an open quote ends with the text
 * @returns {string[]}
 */
export function commandWords(text, dialect = "pipeline") {
  const words = [];
  /** @type {string | undefined} */
  let word;
  let quote = "";
  for (let at = 0; at < text.length; at += 1) {
    const char = text[at];
    const next = text[at + 1];
    if (!quote) {
      if (char === '"' || char === "'") {
        quote = char;
        word ??= "";
      } else if (char === " " || char === "\t" || (dialect === "pipeline" && (char === "\n" || char === "\r"))) {
        if (word !== undefined) words.push(word);
        word = undefined;
      } else {
        word = (word ?? "") + char;
      }
    } else if (char === "\\" && next !== undefined && isEscaped(next, quote, dialect)) {
      at += 1;
      if (dialect === "sdk" || next !== "\n") word += next;
    } else if (char === quote) {
      quote = "";
    } else {
      word += char;
    }
  }
  if (quote && dialect === "pipeline") throw new Error("Unclosed quote");
  if (word !== undefined) words.push(word);
  return words;
}

/**
 * @param {string} next
 * @param {string} quote
 * @param {"pipeline" | "sdk"} dialect
 */
function isEscaped(next, quote, dialect) {
  return dialect === "sdk" || (quote === "'" ? next === "'" : '"\\$`\n'.includes(next));
}

/**
 * @param {string[]} words
 * @param {string[]} switches
 */
function stageArgs(words, switches) {
  /** @type {import("./core.d.ts").StageArgs} */
  const args = { _: [] };
  const set = (/** @type {string} */ key, /** @type {string | true} */ value) => {
    // `--__proto__` is an option like any other.
    Object.defineProperty(args, key, { value, enumerable: true, configurable: true, writable: true });
  };
  for (let at = 0; at < words.length; at += 1) {
    const word = words[at];
    if (!word.startsWith("--")) {
      args._.push(word);
      continue;
    }
    const equals = word.indexOf("=");
    const key = word.slice(2, equals < 0 ? undefined : equals);
    const next = words[at + 1];
    if (equals >= 0) {
      set(key, word.slice(equals + 1));
    } else if (switches.includes(key) || next === undefined || next.startsWith("--")) {
      set(key, true);
    } else {
      set(key, next);
      at += 1;
    }
  }
  return args;
}

/**
 * A word as a pipeline reads it back.
 *
 * @param {unknown} word
 */
export function pipelineWord(word) {
  const text = String(word);
  if (text.includes("\0")) throw new Error("a word of a command holds a NUL character");
  return `"${text.replace(/[\\"$`]/g, "\\$&")}"`;
}

/**
 * A command and its arguments as pipeline text: options, switches, and after `--` the words.
 *
 * @param {string} name
 * @param {import("./core.d.ts").StageArgs} args
 */
export function stageText(name, args = { _: [] }) {
  const options = Object.entries(args).filter(([key, value]) => key !== "_" && value !== undefined && value !== false);
  const words = options.map(([key, value]) => {
    if (value === true) return `--${key}=true`;
    return `--${key}=${typeof value === "string" ? value : JSON.stringify(value)}`;
  });
  const positional = Array.isArray(args._) ? args._ : [];
  return [name, ...words, ...(positional.length > 0 ? ["--", ...positional] : [])].map(pipelineWord).join(" ");
}
