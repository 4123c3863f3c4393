#!/usr/bin/env bash
# The incumbent's own tests of its entry points, over our npm package:
#   LOBSTER_BIN=PROGRAM shipped.sh DIRECTORY
# Exit status 75: the registry is out of reach.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
cd "$1"
version=2026.9.13
integrity=sha512-sWbtxWkiN1UWVwhoUiMhrIus7ZjbavSQJc8zO3FUTh9p9AUECJrtR7eMyNZmkLP5zxSG8KhbQRjdlCIK2qkWKA==
export npm_config_audit=false npm_config_fund=false npm_config_update_notifier=false npm_config_loglevel=error
if [[ ! -d incumbent-$version ]]; then
  npm pack "@clawdbot/lobster@$version" >/dev/null 2>&1 || { echo "the npm registry is out of reach" >&2; exit 75; }
  archive=clawdbot-lobster-$version.tgz
  got="sha512-$(openssl dgst -sha512 -binary "$archive" | base64 -w0)"
  [[ $got == "$integrity" ]] || { echo "@clawdbot/lobster@$version is not what it was: $got" >&2; exit 1; }
  rm -rf incumbent.part && mkdir incumbent.part
  tar xzf "$archive" -C incumbent.part --strip-components=1
  # What its tests import besides the modules that are ours.
  (cd incumbent.part && npm install --omit=dev --ignore-scripts >/dev/null) || exit 75
  mv incumbent.part "incumbent-$version"
  rm "$archive"
fi
node "$here/shipped.mjs" "incumbent-$version"
