// Node's Buffer, for packages that expect it.
export { Buffer } from "buffer";
