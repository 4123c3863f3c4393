import Mustache from "mustache";
export default () => Mustache.render("{{#rows}}{{name}}{{^last}}, {{/last}}{{/rows}} {{{raw}}} {{raw}} {{> part}}", { rows: [{ name: "a" }, { name: "b", last: true }], raw: "<x>" }, { part: "<{{raw}}>" });
