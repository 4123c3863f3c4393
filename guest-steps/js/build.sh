#!/usr/bin/env bash
# Builds dist/js-eval.wasm and its line in dist/LOCK. `--check` builds it
# elsewhere and compares.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
dist=$here/../dist
tool=$here/node_modules/.bin/componentize-qjs
[[ -x $tool ]] || { echo "build.sh: run ../setup.sh --js first" >&2 && exit 1; }

out=$dist/js-eval.wasm
if [[ ${1:-} == --check ]]; then
  out=$(mktemp --suffix .wasm)
  trap 'rm -f "$out"' EXIT
fi
# No clock, no randomness, no files, nothing of WASI: what the code cannot
# import, no grant can give it.
(cd "$here/eval" && "$tool" --wit "$here/../../wit" --world step --js eval.js \
  --sync --stub-wasi --opt-size --minify --output "$out" >/dev/null)

version=$(sed -n 's/^ *"componentize-qjs": "\(.*\)"$/\1/p' "$here/package.json")
line="js-eval $(b3sum --no-names "$out") $(stat -c %s "$out") component componentize-qjs-$version"
if [[ ${1:-} == --check ]]; then
  cmp "$out" "$dist/js-eval.wasm"
  grep -qxF "$line" "$dist/LOCK" && echo "js-eval is what its source gives"
  exit
fi
touch "$dist/LOCK"
{ echo "$line" && grep -v '^js-eval ' "$dist/LOCK" || true; } | sort >"$dist/LOCK.new"
mv "$dist/LOCK.new" "$dist/LOCK"
echo "$line" | cut -d ' ' -f 1-3
