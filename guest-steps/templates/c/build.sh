#!/usr/bin/env bash
# Builds step-name.wasm. Needs zig, a wasi-sdk or clang with wasi-libc; sdk/wasm-cc.sh
# finds it and says what is missing.
set -euo pipefail
cd "$(dirname "$0")"
sdk/wasm-cc.sh -mexec-model=reactor -std=c11 -Os -Wall -Wextra -Isdk -Wl,--strip-all \
  step.c sdk/*.c sdk/gen/step.c sdk/gen/step_component_type.o -o step-name.wasm
