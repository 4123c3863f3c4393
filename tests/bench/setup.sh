#!/bin/sh
# Installs what bench.py compares with into a directory (default: ./incumbent):
# the incumbent from npm, and the node that it needs.
set -eu
directory=${1:-incumbent}
mkdir -p "$directory"
cd "$directory"
[ -e package.json ] || echo '{"private":true}' > package.json
npm install --no-audit --no-fund --save-exact @clawdbot/lobster@2026.9.13 node@22
node_modules/.bin/node --version
node_modules/.bin/node "$(node_modules/.bin/node -p 'const p = require("./node_modules/@clawdbot/lobster/package.json"); require("path").join("node_modules/@clawdbot/lobster", typeof p.bin === "string" ? p.bin : p.bin.lobster)')" version
echo "compare with: bench.py --incumbent $(pwd)"
