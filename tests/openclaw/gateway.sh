#!/usr/bin/env bash
# Real gateways of OpenClaw with the Lobster tool over our program, called as a
# client of theirs does, without a model:
#   gateway.sh BINARY [DIRECTORY]      installs the pinned packages into DIRECTORY, once
# About 950 MiB, so it is no part of what every change must pass; nightly.
# Skips, and says so, without npm or a registry.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
binary=$(realpath "$1")
dir=${2:-${XDG_CACHE_HOME:-$HOME/.cache}/lobster-openclaw-gateway}
checked="OpenClaw's gateways are not tried"
source "$here/../registry.sh"
command -v npm >/dev/null || skip "npm is not installed"
mkdir -p "$dir"
cp "$here"/gateway/package.json "$here"/gateway/package-lock.json "$dir"
cd "$dir"
# What builds native code serves chat services and local models, which nobody asks here.
[[ -d node_modules ]] || fetch npm ci --no-audit --no-fund --ignore-scripts --legacy-peer-deps --omit=optional --omit=peer
[[ -x node_modules/node/bin/node ]] || fetch npm rebuild node
node_modules/node/bin/node "$here/gateway/drive.mjs" "$binary" "$here/../../cli/npm" "$dir/node_modules"
