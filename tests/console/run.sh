#!/usr/bin/env bash
# The console in a real browser: each page, live updates, answering, the keyboard, hostile texts.
#   tests/console/run.sh LOBSTER [DIR] [WORDS FOR PLAYWRIGHT]      DIR keeps the pinned packages between calls
# Needs node and a Chromium; installs Debian's where it may. What cannot be had is said, and skipped.
set -euo pipefail
lobster=$(realpath "$1")
here=$(cd "$(dirname "$0")" && pwd)
dir=${2:-$(mktemp -d)}
mkdir -p "$dir"
dir=$(realpath "$dir")
cp "$here"/*.json "$here"/*.mjs "$dir"
[[ -z ${CONSOLE_PICTURES:-} ]] || CONSOLE_PICTURES=$(realpath -m "$CONSOLE_PICTURES")
export CONSOLE_PICTURES=${CONSOLE_PICTURES:-}
checked="the console is not looked at in a browser"
source "$here/../registry.sh"

find_browser() { command -v chromium-headless-shell || command -v chromium || command -v google-chrome; }
needs() { ! find_browser >/dev/null || ! command -v npm >/dev/null; }
if needs && [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium-headless-shell; } >/dev/null 2>&1 || true
  command -v npm >/dev/null || DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends npm >/dev/null 2>&1 || true
fi
command -v npm >/dev/null || skip "npm is not installed"
browser=$(find_browser) || skip "there is no Chromium, and installing one needs root and apt"
cd "$dir"
export PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD=1
[[ -d node_modules ]] || fetch npm ci --no-audit --no-fund

place=$(mktemp -d)
server=
stop() {
  if [[ -n $server ]]; then kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; fi
  # What the server started may still be ending.
  rm -rf "$place" 2>/dev/null || { sleep 2; rm -rf "$place"; }
}
trap stop EXIT
mkdir "$place/flows"
cp "$here"/*.lobster "$place/flows"
export LOBSTER_STATE_DIR=$place/state LOBSTER=$lobster CONSOLE_DIR=$place/flows CONSOLE_BROWSER=$browser CONSOLE_SESSION=$place/session.json CONSOLE_KEPT=$here/pictures
export LOBSTER_ACTOR=ann
cd "$place/flows"
"$lobster" schedule register --trust report.lobster >/dev/null
"$lobster" serve --listen 127.0.0.1:0 --workflows "$place/flows" 2>"$place/said" &
server=$!
until grep -q 'listens on' "$place/said"; do sleep 0.1; done
CONSOLE_URL=$(grep -o 'http:[^ ]*' "$place/said" | head -n 1)
export CONSOLE_URL
# One of each kind of run.
"$lobster" run --mode tool broken.lobster >/dev/null || true
for flow in approve ask; do "$lobster" run --mode tool $flow.lobster >/dev/null || true; done
link=$("$lobster" serve link --name ben --role admin --url "$CONSOLE_URL")
cd "$dir"
node login.mjs "$link"
projects=(--project=desktop --project=phone)
(($# > 2)) && projects=()
node node_modules/@playwright/test/cli.js test "${projects[@]}" "${@:3}"
