import Handlebars from "handlebars";
Handlebars.registerHelper("loud", (text) => String(text).toUpperCase());
export default () => Handlebars.compile("{{#each rows}}{{@index}}:{{loud name}} {{#if last}}!{{else}},{{/if}}{{/each}} {{{raw}}} {{raw}}")({ rows: [{ name: "a" }, { name: "b", last: true }], raw: "<x>" });
