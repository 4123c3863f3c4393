#!/usr/bin/env bash
# The incumbent's own tests against our program:
#   run.sh BINARY [OPTIONS of suite.py]
# Skips, and says so, if node 22 or the package cannot be had; LOBSTER_REQUIRE_INCUMBENT=1 makes that an error.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
binary=$(realpath "$1")
shift
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
status=0
found=$("$here/install.sh" "$scratch" "$(cat "$here/../conformance/cases/VERSION")") || status=$?
if ((status == 75)) && [[ ${LOBSTER_REQUIRE_INCUMBENT:-0} == 0 ]]; then
  echo "skipped: the incumbent cannot be had"
  exit 0
fi
((status == 0)) || exit "$status"
eval "$found"
python3 "$here/suite.py" --node "$node" --incumbent "$incumbent" --binary "$binary" "$@"
