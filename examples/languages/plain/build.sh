#!/usr/bin/env bash
# Builds size.wasm. `gen` is what `wit-bindgen c wit/step.wit --world step-http --rename-world step` writes.
set -euo pipefail
cd "$(dirname "$0")"
sources=${LOBSTER_SOURCES:-../../..}
mkdir -p gen
cp "$sources"/guest-steps/c/gen/step* gen
"$sources"/guest-steps/c/wasm-cc.sh -mexec-model=reactor -Os -Wall -Wextra -c gen/step.c -o gen/step.o
"$sources"/guest-steps/c/wasm-cc.sh -mexec-model=reactor -Os -Wall -Wextra -fno-exceptions -Wl,--strip-all \
  step.cpp gen/step.o gen/step_component_type.o -o size.wasm
