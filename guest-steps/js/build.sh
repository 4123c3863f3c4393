#!/usr/bin/env bash
# Builds dist/js-eval.wasm and its line in dist/LOCK.
#
#   build.sh           build
#   build.sh --check   say whether dist/js-eval.wasm is the one of LOCK, built from
#                      the sources as they are now
#
# The tool snapshots an initialised QuickJS, in which it leaves addresses and
# seeds of its own run, so two builds differ in their bytes. LOCK therefore also
# holds the digest of the sources.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
dist=$here/../dist
tool=$here/node_modules/.bin/componentize-qjs
out=$dist/js-eval.wasm
version=$(sed -n 's/^ *"componentize-qjs": "\(.*\)"$/\1/p' "$here/package.json")
sources=$(cat "$here/eval/eval.js" "$here"/../../wit/*.wit "$here/package-lock.json" "$0" | b3sum --no-names)
lock_line() { echo "js-eval $(b3sum --no-names "$out") $(stat -c %s "$out") component componentize-qjs-$version sources-$sources"; }

if [[ ${1:-} == --check ]]; then
  grep -qxF "$(lock_line)" "$dist/LOCK" || { echo "build.sh: js-eval.wasm, its sources and LOCK do not belong together; run build.sh" >&2 && exit 1; }
  echo "js-eval is the one of LOCK"
  exit
fi

[[ -x $tool ]] || { echo "build.sh: run ../setup.sh --js first" >&2 && exit 1; }
# No clock, no randomness, no files, nothing of WASI: what the code cannot
# import, no grant can give it.
(cd "$here/eval" && "$tool" --wit "$here/../../wit" --world step --js eval.js \
  --sync --stub-wasi --opt-size --minify --output "$out" >/dev/null)
{ lock_line && grep -v '^js-eval ' "$dist/LOCK" || true; } | sort >"$dist/LOCK.new"
mv "$dist/LOCK.new" "$dist/LOCK"
lock_line | cut -d ' ' -f 1-3
