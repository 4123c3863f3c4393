#!/usr/bin/env bash
# Installs what build.sh and js/build.sh need. Two routes:
#
#   setup.sh            rustup: the WebAssembly targets of the toolchain in use
#   setup.sh --debian   Debian bookworm: rustc-web and the sources of std (as root).
#                       This is the toolchain of the checked-in components, so it
#                       is what `build.sh --check` needs. The linker still comes
#                       from a rustup toolchain, which need not have any target.
#   ... --js            also the JavaScript tools (into js/node_modules)
set -euo pipefail
cd "$(dirname "$0")"

for argument in "$@"; do
  case "$argument" in --debian | --js) ;; *) echo "setup.sh: what is \`$argument\`?" >&2 && exit 2 ;; esac
done

if [[ " $* " == *" --debian "* ]]; then
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
    rustc-web cargo-web rust-web-src wasi-libc b3sum
else
  rustup target add wasm32-unknown-unknown wasm32-wasip2
  command -v b3sum >/dev/null || cargo install --locked b3sum
fi
if [[ " $* " == *" --js "* ]]; then
  # Not `npm ci`: the tool names bindings for other machines that were never published,
  # which no lock file can hold. What is installed has the digest of the lock file.
  npm --prefix js install --no-save --no-audit --no-fund
fi
