import nunjucks from "nunjucks";
const env = new nunjucks.Environment(null, { autoescape: true });
export default () => env.renderString("{% for row in rows %}{{ loop.index }}:{{ row | upper }} {% endfor %}{{ raw }} {{ raw | safe }}{% set x = 2 %} {{ x * 3 }}", { rows: ["a", "b"], raw: "<x>" });
