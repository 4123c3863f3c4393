/** Defines globals as the engine's own are defined: they can be replaced and are not listed. */
export function define(globals) {
  for (const [name, value] of Object.entries(globals)) {
    Object.defineProperty(globalThis, name, { value, writable: true, configurable: true, enumerable: false });
  }
}
