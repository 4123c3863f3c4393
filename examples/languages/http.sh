#!/bin/sh
# Builds the step of http/ that is written in each of the languages that are named, and runs
# http/fetch.lobster with it against http/server.py. A language whose tools are not here is skipped.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
dir=$(mktemp -d)
python3 "$here/http/server.py" 18123 >"$dir/port" &
server=$!
trap 'kill "$server"; rm -rf "$dir"' EXIT
until [ -s "$dir/port" ]; do kill -0 "$server" && sleep 0.1; done
cp "$here/http/fetch.lobster" "$dir/"
for language in ${*:-c go js python rust ts}; do
  project=$dir/fetch-$language
  sh "$here/http/project.sh" "$language" "$project"
  if lobster step build "$project" >"$dir/log" 2>&1; then
    cp "$project"/*.wasm "$dir/fetch.wasm"
    echo "$language: $(lobster run "$dir/fetch.lobster" 2>/dev/null | tr -d '\n')"
  else
    echo "$language: not built here: $(tail -n 1 "$dir/log")"
  fi
done
