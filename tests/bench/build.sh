#!/usr/bin/env bash
# What building costs: a cold `cargo build --release`, rebuilds after a change in policy, stages and cli, the size of
# the dist binary. With the name of a commit, that commit is built cold in the same sitting, turn by turn:
#
#   tests/bench/build.sh [--no-dist] [COMMIT]        e.g. COMMIT = the one before the crates were cut, 442ab85^
#
# Bars: cold at most 0.65 of the commit, a rebuild at most 25 s, the dist binary at most 36 MiB. Takes an hour on two
# cores. Everything is built in a directory of its own, with CARGO_INCREMENTAL as cargo has it for release (off) unless
# you set it. Nothing is downloaded while the clock runs.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
dist=1
if [[ ${1:-} == --no-dist ]]; then dist= && shift; fi
commit=${1:-}
place=$(mktemp -d "${TMPDIR:-/tmp}/lobster-build.XXXXXX")
cleanup() {
  [[ -z $commit ]] || git -C "$root" worktree remove --force "$place/then" 2>/dev/null || true
  git -C "$root" worktree remove --force "$place/now" 2>/dev/null || true
  rm -rf "$place"
}
trap cleanup EXIT

# build DIRECTORY PROFILE TARGET: the seconds it took
build() {
  local begun ended
  begun=$(date +%s.%N)
  (cd "$1" && CARGO_TARGET_DIR="$place/target-$3" cargo build --locked --quiet --profile "$2" -p lobster-cli) >&2
  ended=$(date +%s.%N)
  awk "BEGIN { printf \"%.1f\", $ended - $begun }"
}
# bar FIGURE LIMIT: ok or not; also remembers that one was not
bar() { if awk "BEGIN { exit !($1 <= $2) }"; then echo "ok"; else touch "$place/over" && echo "OVER THE BAR"; fi; }

# A tree of its own: files are touched in it. What is not committed counts, too.
git -C "$root" worktree add --quiet --detach "$place/now" HEAD
git -C "$root" diff HEAD --binary | git -C "$place/now" apply --allow-empty 2>/dev/null || true
(cd "$place/now" && cargo fetch --locked --quiet)
if [[ -n $commit ]]; then
  git -C "$root" worktree add --quiet --detach "$place/then" "$commit"
  (cd "$place/then" && cargo fetch --locked --quiet)
  then=$(build "$place/then" release then)
  echo "cold release build of $commit: $then s"
fi
now=$(build "$place/now" release now)
echo "cold release build: $now s"
if [[ -n $commit ]]; then
  ratio=$(awk "BEGIN { printf \"%.2f\", $now / $then }")
  echo "  $ratio of $commit (bar 0.65): $(bar "$ratio" 0.65)"
fi
for crate in runtime/policy runtime/stages cli; do
  # A change that the compiler must take seriously, unlike a new time of the file.
  printf '\n/// Changed by tests/bench/build.sh.\npub const CHANGED_BY_BUILD_BENCH: u64 = %d;\n' "$RANDOM" >>"$place/now/$crate/src/lib.rs"
  took=$(build "$place/now" release now)
  echo "rebuild after a change in $crate: $took s (bar 25 s): $(bar "$took" 25)"
done
if [[ -n $dist ]]; then
  took=$(build "$place/now" dist now)
  size=$(stat -c %s "$place/target-now/dist/lobster")
  size=$(awk "BEGIN { printf \"%.1f\", $size / 1048576 }")
  echo "dist: cold $took s, $size MiB (bar 36 MiB): $(bar "$size" 36)"
fi
[[ ! -e $place/over ]]
