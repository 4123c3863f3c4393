#!/usr/bin/env bash
# Builds dist/js-eval.wasm and its line in dist/LOCK.
#
#   build.sh           build
#   build.sh --check   build elsewhere and compare with dist/ bit for bit
#
# Needs Linux on x86-64 with glibc, a C compiler and cargo: still.c keeps the clock
# and the randomness of this machine out of the snapshot that the tool makes, and
# link/ makes one module of what it is made of.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
dist=$here/../dist
tool=$here/node_modules/.bin/componentize-qjs
version=$(sed -n 's/^ *"componentize-qjs": "\(.*\)"$/\1/p' "$here/package.json")

[[ -x $tool ]] || { echo "build.sh: run ../setup.sh --js first" >&2 && exit 1; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
out=$scratch/js-eval.wasm
"${CC:-cc}" -O1 -Wall -Wextra -Werror -shared -fPIC -o "$scratch/still.so" "$here/still.c" -ldl
# No clock, no randomness, no files, nothing of WASI: what the code cannot
# import, no grant can give it.
"$here/globals.sh" "$scratch/globals.js"
cp "$here/eval/eval.js" "$scratch"
(cd "$scratch" && LD_PRELOAD=$scratch/still.so "$tool" --wit "$here/../../wit" --world step --js eval.js --module-root . \
  --sync --stub-wasi --minify --output "$scratch/libraries.wasm" >/dev/null)
node "$here/../templates/js/stack.mjs" "$scratch/libraries.wasm"
cargo run --quiet --release --locked --manifest-path "$here/link/Cargo.toml" -- \
  "$here/../../wit" "$scratch/libraries.wasm" "$out"
line="js-eval $(b3sum --no-names "$out") $(stat -c %s "$out") component componentize-qjs-$version"

if [[ ${1:-} == --check ]]; then
  cmp "$out" "$dist/js-eval.wasm"
  cmp "$scratch/globals.js" "$here/../templates/js/globals.js"
  grep -qxF "$line" "$dist/LOCK" || { echo "LOCK differs: $line" >&2 && exit 1; }
  echo "js-eval is what its sources give"
  exit
fi

cp "$out" "$dist/js-eval.wasm"
cp "$scratch/globals.js" "$here/../templates/js/globals.js"
{ echo "$line" && grep -v '^js-eval ' "$dist/LOCK" || true; } | sort >"$dist/LOCK.new"
mv "$dist/LOCK.new" "$dist/LOCK"
"$here/../sources.sh" --write js-eval
echo "$line" | cut -d ' ' -f 1-3
