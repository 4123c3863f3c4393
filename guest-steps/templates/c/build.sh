#!/usr/bin/env bash
# Builds step-name.wasm. Needs a C compiler for wasm32-wasi (`zig`, `python -m ziglang`,
# or clang with wasi-libc) and a tool that makes a component of a module
# (`wasm-tools`, or `jco` of npm's @bytecodealliance/jco).
set -euo pipefail
cd "$(dirname "$0")"
flags=(-mexec-model=reactor -Os -Wall -Wextra "-Wl,--strip-all" -I. step.c gen/step.c gen/step_component_type.o -o step-name.core.wasm)
trap 'rm -f step-name.core.wasm' EXIT
if command -v zig >/dev/null; then
  zig cc -target wasm32-wasi "${flags[@]}"
elif python3 -m ziglang version >/dev/null 2>&1; then
  python3 -m ziglang cc -target wasm32-wasi "${flags[@]}"
elif [[ -n ${WASI_SDK_PATH:-} ]]; then
  "$WASI_SDK_PATH/bin/clang" --target=wasm32-wasip1 "${flags[@]}"
else
  "${CLANG:-clang}" --target=wasm32-wasi --sysroot="${WASI_SYSROOT:-/usr}" "${flags[@]}"
fi
# The step uses no WASI, so no adapter is needed; a step that does adds
# `--adapt wasi_snapshot_preview1.reactor.wasm` here.
if command -v wasm-tools >/dev/null; then
  wasm-tools component new step-name.core.wasm -o step-name.wasm
else
  "${JCO:-jco}" new step-name.core.wasm -o step-name.wasm
fi
