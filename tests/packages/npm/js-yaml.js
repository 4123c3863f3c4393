import * as yaml from "js-yaml";
export default () => [yaml.load("a: &x [1, two]\nb: *x\nd: 2026-11-29\n"), yaml.dump({ a: [1, { b: "x: y" }], d: null })];
