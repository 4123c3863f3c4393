#!/usr/bin/env bash
# Gets OpenClaw's own Lobster plugin, pinned, and makes it loadable by node:
#   fetch.sh DIRECTORY
# The plugin's source files are taken as they were published; only types are
# stripped and modules put into one file. Exit status 75: the registry is out of reach.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=$1
mkdir -p "$out"
cd "$out"

# The embedded plugin imports @clawdbot/lobster/core, which is our package: that of this checkout,
# whichever one fetched the rest.
mkdir -p embedded/node_modules/@clawdbot
ln -sfn "$(cd "$here/../../cli/npm" && pwd)" embedded/node_modules/@clawdbot/lobster
[[ -f done ]] && exit 0

unreachable() { echo "the npm registry is out of reach" >&2; exit 75; }
export npm_config_audit=false npm_config_fund=false npm_config_update_notifier=false npm_config_loglevel=error
npm view openclaw@2026.3.13 version >/dev/null 2>&1 || unreachable

# The last versions of each way of calling that the registry has: a subprocess, and in process.
pack() { # version, integrity
  if [[ ! -d $1 ]]; then
    npm pack "openclaw@$1" >/dev/null 2>&1 || unreachable
    got="sha512-$(openssl dgst -sha512 -binary "openclaw-$1.tgz" | base64 -w0)"
    [[ $got == "$2" ]] || { echo "openclaw@$1 is not what it was: $got" >&2; exit 1; }
    mkdir -p "$1.part" && tar xzf "openclaw-$1.tgz" -C "$1.part" --strip-components=1 && mv "$1.part" "$1"
    rm "openclaw-$1.tgz"
  fi
}
pack 2026.3.13 sha512-/juSUb070Xz8K8CnShjaZQr7CVtRaW4FbR93lgr1hLepcRSbyz2PQR+V4w5giVWkea61opXWPA6Vb8dybaztFg==
pack 2026.4.25 sha512-VBekZHT+m5/scRBHTZg6bE93K2PpElGrsOvK/WxJ8sXKwhzYEYHWbMCmXssDoiKaHVy8+0RwayLTMyAmC/5BbA==

# What the plugins import, in the versions that those releases pin.
[[ -f package.json ]] || echo '{"private":true,"type":"module"}' >package.json
npm install --save-exact esbuild@0.25.10 @sinclair/typebox@0.34.48 typebox@1.1.33 zod@4.3.6 >/dev/null || unreachable
export NODE_PATH=$PWD/node_modules
bundle() { npx esbuild "$@" --bundle --format=esm --platform=node --log-level=error; }
bundle 2026.3.13/extensions/lobster/index.ts --outfile=subprocess/plugin.js \
  --alias:openclaw/plugin-sdk/lobster=./2026.3.13/dist/plugin-sdk/lobster.js
bundle 2026.4.25/dist/extensions/lobster/index.js --outfile=embedded/plugin.js
touch done
