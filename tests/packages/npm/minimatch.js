import { braceExpand, escape, filter, match, minimatch } from "minimatch";
export default () => [minimatch("src/a/b.js", "src/**/*.{js,ts}"), minimatch(".git/x", "**"), match(["a.md", "b.txt", "c.MD"], "*.md", { nocase: true }), ["a/b", "a/c"].filter(filter("a/[!b]*")), escape("a*"), braceExpand("{1..3}{a,b}")];
