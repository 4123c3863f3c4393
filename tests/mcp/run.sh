#!/usr/bin/env bash
# Clients and servers that nobody here wrote, against a lobster binary.
#   tests/mcp/run.sh LOBSTER DIR      installs the pinned packages into DIR, once
# A registry that cannot be reached skips the check, and says so.
set -euo pipefail
lobster=$(realpath "$1")
mkdir -p "$2"
dir=$(realpath "$2")
here=$(cd "$(dirname "$0")" && pwd)
cp -r "$here"/. "$dir"
cd "$dir"
checked="clients and servers of other people are not tried"
source "$here/../registry.sh"
command -v npm >/dev/null || skip "npm is not installed"
python3 -c 'import venv, ensurepip' 2>/dev/null || skip "python3 has no venv"
[[ -d node_modules ]] || fetch npm ci --no-audit --no-fund
if [[ ! -x python/bin/pip ]]; then
  python3 -m venv python
fi
fetch python/bin/pip install -r requirements.txt
node=$dir/node_modules/node/bin/node
state=$(mktemp -d)
server=
trap 'if [[ -n $server ]]; then kill $server; fi; rm -rf "$state"' EXIT

echo "-- TypeScript SDK's client"
"$node" sdk.mjs "$lobster" "$here/../../guest-steps/dist/regex.wasm"

echo "-- Python SDK's client (protocol 2026-07-28)"
python/bin/python sdk.py "$lobster"

echo "-- official inspector, as a command"
"$node" inspector.mjs "$lobster" "$here/../../guest-steps/dist/regex.wasm"

echo "-- official conformance suite for servers"
LOBSTER_STATE_DIR=$state "$lobster" mcp --workflows "$dir/conformance" --http 127.0.0.1:0 --no-token 2>"$state/said" &
server=$!
until grep -q /mcp "$state/said"; do sleep 0.1; done
url=$(grep -o 'http:[^ ]*' "$state/said")
"$node" node_modules/.bin/conformance server --url "$url" --suite all --expected-failures expected-failures.yaml \
  >"$state/conformance" || { sed -n '/=== SUMMARY/,$p' "$state/conformance"; exit 1; }
sed -n '/=== SUMMARY/,$p' "$state/conformance" | tail -12

echo "-- its newest pre-release: what protocol 2026-07-28 requires"
"$node" node_modules/conformance-next/dist/index.js server --url "$url" --requirements 2026-07-28 \
  --expected-failures expected-failures-2026-07-28.yaml >"$state/conformance" \
  || { sed -n '/=== SUMMARY/,$p' "$state/conformance"; exit 1; }
sed -n '/=== SUMMARY/,$p' "$state/conformance" | tail -20
kill $server
server=

echo "-- the same of clients"
LOBSTER=$lobster "$node" node_modules/conformance-next/dist/index.js client --command "python3 $dir/client.py" \
  --requirements 2026-07-28 --timeout 120000 --expected-failures expected-failures-client.yaml >"$state/conformance" 2>&1 \
  || { sed -n '/=== SUITE SUMMARY/,$p' "$state/conformance"; exit 1; }
sed -n '/=== SUITE SUMMARY/,$p' "$state/conformance" | grep -E '^(Total|✗)'

echo "-- official server as the counterpart of mcp.call"
python3 everything.py "$lobster" "$node" node_modules/@modelcontextprotocol/server-everything/dist/index.js
