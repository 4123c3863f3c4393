#!/usr/bin/env bash
# Builds step-name.wasm: checks the types, makes one module of step.ts and of the npm packages
# that it imports, and puts that into the engine of the JavaScript template (QuickJS). Needs
# node and npm; the tools come by npm.
set -euo pipefail
cd "$(dirname "$0")"
for tool in node npm; do
  command -v $tool >/dev/null || { echo "$tool is not on PATH: https://nodejs.org, or apt-get install nodejs npm" >&2 && exit 127; }
done
# Installed when they are missing and when package.json changes.
made_from=node_modules/.made-from
if ! cmp -s package.json $made_from; then
  npm install --no-audit --no-fund >&2 || { echo "npm could not install what package.json names; the lines above say why" >&2 && exit 1; }
  cp package.json $made_from
fi
export PATH=$PWD/node_modules/.bin:$PATH
tsc
esbuild step.ts --bundle --format=esm --platform=neutral --main-fields=module,main --target=es2022 \
  '--external:lobster:*' '--external:wasi:*' --log-level=warning --outfile=build/step.js
# Only a step that imports lobster_http.js has HTTP.
world=step
! grep -qF '"lobster:step/http@' build/step.js || world=step-http
# --stub-wasi: no clock, no randomness, no files. Leave it out if the step needs
# a grant for one of them.
componentize-qjs --wit wit --world $world --js build/step.js --module-root build \
  --sync --stub-wasi --opt-size --minify --output step-name.wasm
# Endless recursion is an error that the step can catch.
node stack.mjs step-name.wasm
