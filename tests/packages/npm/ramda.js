import * as R from "ramda";
export default () => [R.pipe(R.map(R.multiply(2)), R.filter(R.gt(R.__, 3)))([1, 2, 3]), R.groupBy(R.prop("n"), [{ n: "a" }, { n: "b" }]), R.path(["a", 0, "b"], { a: [{ b: 5 }] })];
