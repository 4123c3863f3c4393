import ejs from "ejs";
export default () => ejs.render("<% for (const row of rows) { %><%= row %>;<%- row %> <% } %>", { rows: ["a", "<b>"] });
