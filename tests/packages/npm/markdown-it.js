import MarkdownIt from "markdown-it";
export default () => new MarkdownIt({ linkify: true, typographer: true }).render('# Title\n\n1. a **b**\n2. https://example.com "quoted" -- bücher.de\n\n```js\nx < 1\n```\n');
