// URL and URLSearchParams, by the package whatwg-url; its `tr46` is idna.js.

import { URL, URLSearchParams } from "whatwg-url";
import { define } from "./define.js";

define({ URL, URLSearchParams });
