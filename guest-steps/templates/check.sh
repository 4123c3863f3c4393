#!/usr/bin/env bash
# Makes a project of every template as an author would, builds it and runs its
# cases; then one that makes HTTP requests. With --whole, for Python also the latter and
# one that uses the library and packages: each is 24 MB to be compiled.
#
#   check.sh LOBSTER [--whole] [LANGUAGE...]
#
# A language whose tools are not here, or whose tools' registry cannot be
# reached, is skipped, and that is said.
set -euo pipefail
lobster=$(realpath "${1:?check.sh LOBSTER [--whole] [LANGUAGE...]}")
shift
whole=
[[ ${1:-} != --whole ]] || { whole=1 && shift; }
here=$(cd "$(dirname "$0")" && pwd)
tests=$here/../../tests/guests
http=$here/../../examples/languages/http
languages=("${@:-}")
[[ -n ${languages[0]} ]] || languages=(c go js python rust ts)
dir=$(mktemp -d)
server=
trap '[[ -z $server ]] || kill "$server"; rm -rf "$dir"' EXIT
export LOBSTER_STATE_DIR=$dir/state
unreachable='ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ETIMEDOUT|ENETUNREACH|name resolution|Network is unreachable|NewConnectionError|ConnectTimeout'

# Builds a project and runs its cases. 3: a tool or its registry is not here.
check() {
  local name=$1 project=$2
  "$lobster" step build "$project" >"$dir/log" 2>&1 || {
    if grep -qE 'a tool is missing' "$dir/log"; then
      echo "SKIPPED: $name: $(head -1 "$dir/log")" && return 3
    elif grep -qiE "$unreachable" "$dir/log"; then
      echo "SKIPPED: $name: its registry cannot be reached" && return 3
    fi
    cat "$dir/log" >&2
    echo "FAILED: $name does not build" >&2
    exit 1
  }
  "$lobster" step test "$project" >"$dir/log" || { cat "$dir/log" >&2 && exit 1; }
  echo "$name: $(tail -1 "$dir/log"), $(stat -c %s "$project"/*.wasm) bytes"
}

# Puts a program of the tests in place of the template's.
other_project() {
  local project=$dir/$1-$2
  cp -r "$dir/tidy-$1" "$project"
  rm -rf "$project"/*.wasm "$project"/cases
  cp -r "$tests/$1/$2/." "$project"
  echo "$project"
}

check_python() {
  local project
  project=$(other_project python library)
  printf 'icalendar\nwebob\n' >>"$project/requirements.txt"
  check "Python's library" "$project"
}

# The step of the example that makes HTTP requests: they are recorded, and then answered
# without a server.
check_http() {
  local language=$1 project=$dir/fetch-$1 at
  PATH=$(dirname "$lobster"):$PATH sh "$http/project.sh" "$language" "$project"
  python3 "$http/server.py" >"$dir/port" &
  server=$!
  until [[ -s $dir/port ]]; do sleep 0.1; done
  at=127.0.0.1:$(cat "$dir/port")
  printf '{"summary": "asks twice", "args": {"url": "http://%s/a?b=c"}, "net": ["%s"], "expect": {"items": [{"status": 200, "type": "text/plain", "text": "grüezi %s"}, {"status": 201}]}}' \
    "$at" "$at" "$language" >"$project/cases/asks.json"
  "$lobster" step build "$project" >"$dir/log" 2>&1 || { cat "$dir/log" >&2 && exit 1; }
  "$lobster" step test --record "$project" >"$dir/log" || { cat "$dir/log" >&2 && exit 1; }
  kill "$server" && server=
  rm "$dir/port"
  "$lobster" step test "$project" >"$dir/log" || { cat "$dir/log" >&2 && exit 1; }
  echo "HTTP in $language: $(tail -1 "$dir/log") as recorded"
}

built=0
for language in "${languages[@]}"; do
  project=$dir/tidy-$language
  "$lobster" step new --lang "$language" "tidy-$language" --dir "$project" >/dev/null
  if check "the template for $language" "$project"; then
    built=$((built + 1))
    [[ $language == python && -z $whole ]] || check_http "$language"
    [[ $language != python || -z $whole ]] || check_python
    [[ $language != js ]] || check "JavaScript's globals" "$(other_project js globals)"
  else
    [[ $? == 3 ]] || exit 1
  fi
done
echo "$built templates build and pass as they are generated"
