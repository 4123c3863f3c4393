// Reads a URL, and posts to it.

import { step } from "./lobster.js";
import { request } from "./lobster_http.js";

interface Args {
  url: string;
}

interface Told {
  status: number;
  type?: string;
  text?: string;
}

export const { describe, run } = step<Args, never, Told>({
  name: "fetch",
  version: "0.1.0",
  summary: "Reads a URL, and posts to it",
  args: { type: "object", required: ["url"], properties: { url: { type: "string" } } },
  output: {},
  wants: [{ net: "", reason: "to read the URL" }],

  run({ url }, _input, output) {
    const answer = request(url, { headers: { "x-from": "ts" } });
    output.emit({ status: answer.status, type: answer.headers["content-type"], text: answer.text() });
    output.emit({ status: request(url, { method: "POST", body: "ü".repeat(5000) }).status });
  },
});
