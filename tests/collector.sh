#!/usr/bin/env bash
# Gets rotel, a small OpenTelemetry collector, pinned, and prints where it is:
#   collector.sh DIRECTORY
set -euo pipefail
mkdir -p "$1"
cd "$1"
agent=$PWD/rotel/rotel-agent
if [[ ! -x $agent ]]; then
  python3 -m pip download --quiet --no-deps --dest . --require-hashes --requirement <(
    echo 'rotel==0.0.1a15 --hash=sha256:2f4117e58410c933e0dc042a268ef738dab2e3a5d63b5831209acdac2a6ddcb7'
  ) >&2
  python3 -m zipfile -e rotel-*.whl .
  chmod +x "$agent"
fi
echo "$agent"
