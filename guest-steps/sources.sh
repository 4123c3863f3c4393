#!/usr/bin/env bash
# Whether what is in dist/ was built from the sources that are here, without building them.
#
#   sources.sh rust|js-eval           the digest of these sources and of what was built from them
#   sources.sh --check rust|js-eval   whether it is the one that dist/SOURCES names
#   sources.sh --write rust|js-eval   names it there; only after a build that gave the bytes of dist/
#
# dist/SOURCES is a note, no proof: the proof is `build.sh --check`, which every night runs.
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")/.."

task=print
case "${1:-}" in
  --check) task=check && shift ;;
  --write) task=write && shift ;;
esac
noted=guest-steps/dist/SOURCES
lock=guest-steps/dist/LOCK
case "${1:-}" in
  rust)
    inputs=(guest-steps/build.sh guest-steps/setup.sh guest-steps/rust wit)
    mapfile -t outputs < <(ls guest-steps/dist/*.wasm tests/guests/dist/*.wasm | grep -v /js-eval)
    lines=$(grep -v '^js-eval ' "$lock")
    ;;
  js-eval)
    inputs=(guest-steps/js guest-steps/templates/js/globals.js guest-steps/templates/js/stack.mjs guest-steps/setup.sh wit)
    outputs=(guest-steps/dist/js-eval.wasm)
    lines=$(grep '^js-eval ' "$lock")
    ;;
  *) echo "sources.sh: rust or js-eval" >&2 && exit 2 ;;
esac

digest=$({
  find "${inputs[@]}" \( -name target -o -name node_modules -o -name cases \) -prune -o -type f -print0 |
    sort -z | xargs -0 sha256sum
  sha256sum "${outputs[@]}"
  echo "$lines"
} | sha256sum | cut -d ' ' -f 1)

case "$task" in
  print) echo "$1 $digest" ;;
  check) grep -qxF "$1 $digest" "$noted" ;;
  write)
    touch "$noted"
    { grep -v "^$1 " "$noted" || true; echo "$1 $digest"; } | sort >"$noted.new"
    mv "$noted.new" "$noted"
    ;;
esac
