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

source "$here/world.sh"
export CONSOLE_BROWSER=$browser CONSOLE_SESSION=$place/session.json CONSOLE_KEPT=$here/pictures
cd "$dir"
node login.mjs "$link"
projects=(--project=desktop --project=phone)
(($# > 2)) && projects=()
node node_modules/@playwright/test/cli.js test "${projects[@]}" "${@:3}"
