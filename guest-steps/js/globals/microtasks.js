// queueMicrotask. The engine has one, but in a synchronous component nothing ever calls what it
// queued; here it is called when the step's own code has ended.

import { define } from "./define.js";

let queued = [];

function queueMicrotask(call) {
  if (typeof call !== "function") throw new TypeError("queueMicrotask takes a function");
  queued.push(call);
}

/** Calls what is queued, and what that queues. */
export function runMicrotasks() {
  for (let at = 0; at < queued.length; at++) queued[at]();
  queued = [];
}

define({ queueMicrotask });
