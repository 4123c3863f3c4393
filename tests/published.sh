#!/usr/bin/env bash
# `lobster step publish` against a real registry, Debian's docker-registry. PROFILE=dev tests what is built already.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! command -v docker-registry >/dev/null && [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq docker-registry >/dev/null || true
fi
command -v docker-registry >/dev/null || { echo "SKIPPED: step publish: docker-registry is not here" && exit 0; }
dir=$(mktemp -d)
registry=
trap '[[ -z $registry ]] || kill "$registry"; rm -rf "$dir"' EXIT
place=127.0.0.1:$((20000 + RANDOM % 20000))
cat >"$dir/config.yml" <<TEXT
version: 0.1
storage: { filesystem: { rootdirectory: $dir/data } }
http: { addr: "$place" }
TEXT
docker-registry serve "$dir/config.yml" >"$dir/log" 2>&1 &
registry=$!
for _ in {1..100}; do
  (exec 3<>"/dev/tcp/${place%:*}/${place#*:}") 2>/dev/null && break
  kill -0 "$registry" || { cat "$dir/log" >&2 && exit 1; }
  sleep 0.1
done
LOBSTER_TEST_REGISTRY=$place cargo test --profile "${PROFILE:-release}" --workspace --test lobster -- published:: --nocapture
