import _ from "lodash";
const rows = [{ n: "b", v: 2 }, { n: "a", v: 1 }, { n: "b", v: 3 }];
export default () => [_.groupBy(rows, "n"), _.sortBy(rows, ["n", "v"]), _.chunk(_.range(7), 3), _.template("<%= a %>!")({ a: 1 }), _.merge({ a: { b: 1 } }, { a: { c: 2 } })];
