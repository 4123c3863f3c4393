import { JSONPath } from "jsonpath-plus";
const json = { store: { book: [{ price: 5, title: "a" }, { price: 15, title: "b" }] } };
export default () => [JSONPath({ path: "$..title", json }), JSONPath({ path: "$.store.book[?(@.price > 10)].title", json }), JSONPath({ path: "$.store.book[-1:]", json, resultType: "path" })];
