#!/usr/bin/env bash
# Holds the recorded cases against a version of the incumbent, and records what differs:
#   record.sh VERSION [OPTIONS of record.py]
# LOBSTER_INCUMBENT=DIR takes the version that is installed there; else npm installs VERSION.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
version=$1
shift
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
found=$("$here/../incumbent/install.sh" "$scratch" "$version")
eval "$found"
installed=$("$node" -p 'JSON.parse(require("fs").readFileSync(process.argv[1])).version' "$incumbent/package.json")
[[ -n ${LOBSTER_INCUMBENT:-} || $installed == "$version" ]] || { echo "npm installed $installed, not $version" >&2; exit 1; }
python3 "$here/record.py" --bin "$node $incumbent/bin/lobster.js" --version "$installed" "$@"
git -C "$here" --no-pager diff --stat -- cases 2>/dev/null || true
