import { concatMap, filter, from, map, reduce, toArray, zip } from "rxjs";
export default () => {
  const seen = [];
  from([1, 2, 3, 4]).pipe(filter((n) => n % 2 === 0), concatMap((n) => [n, n * 10]), toArray()).subscribe((all) => seen.push(all));
  zip(from(["a", "b"]), from([1, 2])).pipe(map(([a, b]) => a + b), reduce((sum, text) => sum + text)).subscribe({ next: (text) => seen.push(text), complete: () => seen.push("done") });
  return seen;
};
