#!/usr/bin/env bash
# The npm package, and OpenClaw's own plugin over our program:
#   run.sh BINARY
# Skips, and says so, what this machine has no node or no network for.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
binary=$(realpath "$1")
export LOBSTER_BIN=$binary

if ! command -v node >/dev/null || (($(node -p 'process.versions.node.split(".")[0]') < 20)); then
  echo "skipped: needs node 20 or later"
  exit 0
fi
(cd "$here/../../cli/npm" && node --test)
python3 "$here/../../cli/npm/conformance/run.py" "$here/../conformance" "$binary"
cache=${OPENCLAW_PLUGINS:-${XDG_CACHE_HOME:-$HOME/.cache}/lobster-openclaw}
status=0
"$here/shipped.sh" "$cache" || status=$?
if ((status == 75)); then
  echo "skipped: the incumbent's own tests cannot be run"
elif ((status != 0)); then
  exit "$status"
else
  # Asked again beside what is recorded of it.
  INCUMBENT_CORE=$(echo "$cache"/incumbent-*/dist/src/core/index.js)
  export INCUMBENT_CORE
fi
node --test "$here/next_plugin.test.js"
status=0
"$here/fetch.sh" "$cache" || status=$?
if ((status == 75)); then
  echo "skipped: OpenClaw's plugin cannot be had"
  exit 0
fi
((status == 0)) || exit "$status"
OPENCLAW_PLUGINS=$cache node --test "$here/plugin.test.js"
