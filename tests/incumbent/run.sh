#!/usr/bin/env bash
# The incumbent's own tests against our program, or random cases in both:
#   run.sh BINARY [OPTIONS of suite.py]
#   run.sh BINARY --differential [OPTIONS of differential.py]
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
script=suite.py
if [[ ${1:-} == --differential ]]; then
  script=differential.py
  shift
fi
python3 "$here/$script" --node "$node" --incumbent "$incumbent" --binary "$binary" "$@"
