import YAML from "yaml";
export default () => [YAML.parse("a: &x [1, two, 2026-11-29]\nb: *x\nc: |\n  text\n  more\n"), YAML.stringify({ a: [1, { b: "x: y" }], d: null }), YAML.parseDocument("a: [").errors.map((error) => error.code)];
