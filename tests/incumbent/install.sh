#!/usr/bin/env bash
# Prints a shell text that sets `node` (22 or later) and `incumbent` (the directory of an installed
# @clawdbot/lobster):
#   eval "$(install.sh DIRECTORY [VERSION])"
# LOBSTER_INCUMBENT names a package that is installed already, as a directory with bin/lobster.js or as the prefix of
# `npm install`; else npm installs VERSION into DIRECTORY. Exits with 75 if neither node nor the package can be had.
set -euo pipefail
into=$1
version=${2:-2026.9.13}

cannot() {
  echo "$*" >&2
  exit 75
}

# Nobody's own configuration of npm, and no scripts of packages.
fetch() { npm install --no-audit --no-fund --no-save --ignore-scripts --prefix "$@" >&2; }

is_new() { [[ -n $1 ]] && (($("$1" -p 'process.versions.node.split(".")[0]') >= 22)); }
node=$(command -v "${LOBSTER_NODE:-node}" || true)
if ! is_new "$node"; then
  command -v npm >/dev/null || cannot "needs node 22 or later, or npm to get it"
  # The package `node` only fetches that of the platform, by a script.
  platform=$(uname -s | tr '[:upper:]' '[:lower:]')-$(uname -m | sed 's/x86_64/x64/; s/aarch64/arm64/')
  fetch "$into/node" "node-$platform@22" || cannot "node 22 cannot be had"
  node=$(find "$into/node/node_modules" -path '*/bin/node' -type f | head -1)
  is_new "$node" || cannot "node 22 cannot be had"
fi

if [[ -n ${LOBSTER_INCUMBENT:-} ]]; then
  incumbent=$LOBSTER_INCUMBENT
  [[ -f $incumbent/bin/lobster.js ]] || incumbent=$LOBSTER_INCUMBENT/node_modules/@clawdbot/lobster
else
  command -v npm >/dev/null || cannot "npm is not here to install @clawdbot/lobster"
  fetch "$into/incumbent" "@clawdbot/lobster@$version" || cannot "@clawdbot/lobster@$version cannot be had"
  incumbent=$into/incumbent/node_modules/@clawdbot/lobster
fi
[[ -f $incumbent/bin/lobster.js ]] || cannot "there is no bin/lobster.js in $incumbent"
printf 'node=%q\nincumbent=%q\n' "$(realpath "$node")" "$(realpath "$incumbent")"
