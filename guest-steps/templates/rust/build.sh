#!/usr/bin/env bash
# Builds step-name.wasm. Needs a Rust toolchain with the target:
#   rustup target add wasm32-wasip2
set -euo pipefail
cd "$(dirname "$0")"
cargo build --release --target wasm32-wasip2 --lib
cp "${CARGO_TARGET_DIR:-target}/wasm32-wasip2/release/step_name.wasm" step-name.wasm
