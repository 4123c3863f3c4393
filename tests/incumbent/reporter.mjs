// One line of JSON for each test that ended: the file, the name with its parents, and how.

import path from "node:path";

// A file that could not be loaded is one test named after it.
const isFile = ({ name, file }) => path.resolve(name) === path.resolve(file ?? "");

export default async function* report(source) {
  const names = [];
  for await (const { type, data } of source) {
    if (type === "test:start") names[data.nesting] = data.name;
    if (type !== "test:pass" && type !== "test:fail") continue;
    if (data.details?.type === "suite" || isFile(data)) continue;
    const name = [...names.slice(0, data.nesting), data.name].join(" > ");
    const error = data.details?.error?.cause ?? data.details?.error;
    const how = type === "test:fail" ? "fail" : data.skip === undefined ? "pass" : "skip";
    yield `${JSON.stringify({ name, how, why: how === "fail" ? String(error?.message ?? error).slice(0, 400) : undefined })}\n`;
  }
}
