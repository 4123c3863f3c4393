import { z } from "zod";
const Row = z.object({ email: z.email(), age: z.coerce.number().int().min(18), tags: z.array(z.string()).default([]), url: z.url().optional() });
export default () => {
  const bad = Row.safeParse({ email: "nope", age: "3", url: "x" });
  return [Row.parse({ email: "a@b.example", age: "20", url: "https://example.com/a" }), bad.success, bad.error.issues.map((issue) => [issue.path, issue.code, issue.message])];
};
