#!/usr/bin/env bash
# Bundles globals/ and the packages that it imports into one module.
#
#   globals.sh [FILE]   default: ../templates/js/globals.js, which is checked in
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=$(realpath -m "${1:-$here/../templates/js/globals.js}")
cd "$here"
[[ -x node_modules/.bin/esbuild ]] || { echo "globals.sh: run ../setup.sh --js first" >&2 && exit 1; }
node_modules/.bin/esbuild globals/index.js --bundle --format=esm --platform=neutral --main-fields=module,main --target=es2022 \
  --alias:tr46=./globals/idna.js '--external:lobster:*' --minify-syntax --minify-whitespace --line-limit=120 \
  --legal-comments=none --log-level=warning --outfile="$out" \
  --banner:js='// What packages expect on `globalThis`: console, TextEncoder, TextDecoder, URL, URLSearchParams, structuredClone and crypto.
// Generated; its sources are guest-steps/js/globals in the repository of lobster. It contains whatwg-url (MIT, (c) Sebastian
// Mayr), webidl-conversions (BSD-2-Clause, (c) Domenic Denicola) and punycode (MIT, (c) Mathias Bynens).'
