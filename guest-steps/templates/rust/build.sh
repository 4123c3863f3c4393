#!/usr/bin/env bash
# Builds step-name.wasm. Needs Rust with the target wasm32-wasip2 (rustup target add
# wasm32-wasip2), or a distribution's Rust with the source of std; wasm-cargo.sh finds what there
# is and says what is missing.
set -euo pipefail
cd "$(dirname "$0")"
./wasm-cargo.sh
cp "${CARGO_TARGET_DIR:-target}/wasm32-wasip2/release/step_name.wasm" step-name.wasm
