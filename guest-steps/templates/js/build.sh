#!/usr/bin/env bash
# Builds step-name.wasm. Needs node and npm; the tool comes by npm.
set -euo pipefail
cd "$(dirname "$0")"
for tool in node npm; do
  command -v $tool >/dev/null || { echo "$tool is not on PATH: https://nodejs.org, or apt-get install nodejs npm" >&2 && exit 127; }
done
# Installed when it is missing and when package.json changes.
made_from=node_modules/.made-from
if ! cmp -s package.json $made_from; then
  npm install --no-audit --no-fund >&2 || { echo "npm could not install what package.json names; the lines above say why" >&2 && exit 1; }
  cp package.json $made_from
fi
# Only a step that imports lobster_http.js has HTTP.
world=step
! grep -qE "^import .*lobster_http" *.js || world=step-http
# --stub-wasi: no clock, no randomness, no files. Leave it out, and the import of still.js in
# lobster.js, if the step needs a grant for one of them.
node_modules/.bin/componentize-qjs --wit wit --world $world --js step.js --module-root . \
  --sync --stub-wasi --opt-size --minify --output step-name.wasm
# Endless recursion is an error that the step can catch.
node stack.mjs step-name.wasm
