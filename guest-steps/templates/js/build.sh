#!/usr/bin/env bash
# Builds step-name.wasm. Needs node; the tool comes by npm.
set -euo pipefail
cd "$(dirname "$0")"
[[ -x node_modules/.bin/componentize-qjs ]] || npm install --no-audit --no-fund
# --stub-wasi: no clock, no randomness, no files. Leave it out if the step needs
# a grant for one of them.
node_modules/.bin/componentize-qjs --wit wit --world step --js step.js --module-root . \
  --sync --stub-wasi --opt-size --minify --output step-name.wasm
