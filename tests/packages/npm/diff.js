import { applyPatch, createPatch, diffJson, diffWords } from "diff";
const [old, now] = ["a\nb\nc\n", "a\nB\nc\nd\n"];
export default () => {
  const patch = createPatch("x.txt", old, now);
  return [diffWords("the quick fox", "the slow fox"), patch, applyPatch(old, patch), diffJson({ a: 1 }, { a: 2 }).length];
};
