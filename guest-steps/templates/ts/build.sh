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
# Of a package, what it has for browsers: there is no node here either. Of node's modules there are
# those that package.json names.
bundle() {
  esbuild step.ts --bundle --format=esm --platform=browser --main-fields=browser,module,main --target=es2022 \
    --inject:./globals.js '--define:process.env.NODE_ENV="production"' '--external:lobster:*' '--external:wasi:*' \
    --log-level=warning --outfile=build/step.js "$@" 2>build/errors && return
  cat build/errors >&2
  # What esbuild advises does not help here.
  ! grep -q "built into node" build/errors ||
    echo "A step has no modules of node. For some npm has a package of the same name, which package.json can name: buffer" >&2
  exit 1
}
mkdir -p build
bundle
# Only where some package uses it.
! grep -qw Buffer build/step.js || bundle --inject:./node_buffer.js
cat build/errors >&2
# Only a step that imports lobster_http.js has HTTP.
world=step
! grep -qF '"lobster:step/http@' build/step.js || world=step-http
# --stub-wasi: no clock, no randomness, no files. Leave it out, and the import of still.js in
# lobster.js, if the step needs a grant for one of them.
componentize-qjs --wit wit --world $world --js build/step.js --module-root build \
  --sync --stub-wasi --opt-size --minify --output step-name.wasm
# Endless recursion is an error that the step can catch.
node stack.mjs step-name.wasm
