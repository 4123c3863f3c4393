// A clock for steps that have none: it begins at 2000-01-01 and goes on by a millisecond whenever it
// is read. A step that needs the real one is built without --stub-wasi and without this file.

const START = Date.UTC(2000, 0, 1);
const RealDate = Date;
let time = START;

const now = () => time++;

function StillDate(...parts) {
  if (!new.target) return new RealDate(now()).toString();
  return Reflect.construct(RealDate, parts.length === 0 ? [now()] : parts, new.target);
}
StillDate.prototype = RealDate.prototype;
StillDate.prototype.constructor = StillDate;
Object.defineProperty(StillDate, "name", { value: "Date" });
Object.defineProperty(StillDate, "length", { value: 7 });
Object.assign(StillDate, { now, parse: RealDate.parse, UTC: RealDate.UTC });

globalThis.Date = StillDate;
globalThis.performance = { timeOrigin: START, now: () => now() - START };
