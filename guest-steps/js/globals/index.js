// What packages expect on `globalThis` and the engine does not have. `../globals.sh` bundles it
// into `templates/js/globals.js`, which the evaluator of `js:` and the templates import first.

import "./encoding.js";
import "./clone.js";
import "./url.js";
import "./console.js";

export { describeValue } from "./console.js";
export { runMicrotasks } from "./microtasks.js";
export { nextFraction, seedCrypto } from "./crypto.js";
