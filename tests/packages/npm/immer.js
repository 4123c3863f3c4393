import { enablePatches, produce, produceWithPatches } from "immer";
enablePatches();
const base = { list: [{ done: false }, { done: true }], name: "x" };
export default () => [produce(base, (draft) => { draft.list[0].done = true; draft.list.push({ done: false }); }), produceWithPatches(base, (draft) => { draft.name = "y"; }), base];
