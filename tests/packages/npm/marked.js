import { marked } from "marked";
export default () => marked.parse("# Title\n\n- a *b* `c`\n- [x](https://example.com)\n\n| a | b |\n|---|---|\n| 1 | 2 |\n");
