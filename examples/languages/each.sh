#!/bin/sh
# Makes, builds and tests a step in each language, or in those that are named.
# A language whose tools are not here is skipped.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
for language in ${*:-c go js python rust ts}; do
  project=$dir/greet-$language
  lobster step new --lang "$language" "greet-$language" --dir "$project" >/dev/null
  if lobster step build "$project" >"$dir/log" 2>&1; then
    echo "$language: $(lobster step test "$project" | tail -n 1)"
  else
    echo "$language: not built here: $(tail -n 1 "$dir/log")"
  fi
done
