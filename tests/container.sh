#!/usr/bin/env bash
# Builds the image of packaging/Containerfile and has it work as docs/serve.md says: a schedule, a question
# that is answered over the published port, a stop, a kill, and a store that outlives them.
#
#   tests/container.sh PROGRAM
#
# PODMAN is the program and its options (`PODMAN="podman --runtime runc"`), RUN_OPTIONS what `podman run` needs
# on this machine besides what the documents name. Skips, and says so, where there is no podman or no base image.
set -euo pipefail
program=$(realpath "$1")
source=$(cd "$(dirname "$0")/.." && pwd)
read -ra podman <<<"${PODMAN:-podman}"
read -ra options <<<"${RUN_OPTIONS:-}"
command -v "${podman[0]}" >/dev/null || { echo "skipped: no ${podman[0]}" && exit 0; }
base=$(sed -n 's/^FROM //p' "$source/packaging/Containerfile")
"${podman[@]}" image exists "$base" || "${podman[@]}" pull --quiet "$base" >/dev/null ||
  { echo "skipped: $base cannot be had" && exit 0; }

place=$(mktemp -d)
name=lobster-test-$$
leave() {
  "${podman[@]}" rm --force --time 1 "$name" >/dev/null 2>&1 || true
  "${podman[@]}" volume rm --force "$name" >/dev/null 2>&1 || true
  "${podman[@]}" rmi --force "$name" >/dev/null 2>&1 || true
  rm -rf "$place"
}
trap leave EXIT
fail() { echo "failed: $*" >&2 && "${podman[@]}" logs "$name" >&2 && exit 1; }

# The directory of an unpacked archive.
mkdir -p "$place/packaging" "$place/flows"
cp "$source"/packaging/{Containerfile,serve.toml} "$place/packaging/"
cp "$program" "$place/lobster"
cat >"$place/flows/hello.lobster" <<'FLOW'
on:
  schedule: { every: 2s, overlap: skip }
steps:
  - { id: who, run: id -un }
  - { id: two, js: "1 + 1" }
  - { id: ask, approval: Go? }
  - { id: done, run: echo done >> /var/lib/lobster/said, when: $ask.approved }
FLOW
cd "$place"
"${podman[@]}" build --quiet -t "$name" -f packaging/Containerfile . >/dev/null
"${podman[@]}" run --detach --name "$name" --init "${options[@]}" -p 127.0.0.1::7410 -v "$name:/var/lib/lobster" \
  -v ./flows:/flows:ro "$name" >/dev/null
inside() { "${podman[@]}" exec "$name" "$@"; }
# Tries until it works, ten seconds long.
until_it() {
  for _ in {1..100}; do
    if "$@" >"$place/said" 2>&1; then return; fi
    sleep 0.1
  done
  fail "$*: $(cat "$place/said")"
}
address() { "${podman[@]}" port "$name" 7410/tcp | head -1; }
api() { curl -sSf -H "Authorization: Bearer $token" -H 'Content-Type: application/json' "http://$(address)/api/v1/$1" "${@:2}"; }

# Another port than that of the container: a name without one is enough.
until_it curl -sSf "http://$(address)/healthz"
until_it inside lobster doctor --service
[[ $(inside lobster serve link) == http://localhost:7410/login#* ]] || fail "the link does not lead to the published port"
inside lobster schedule register --trust /flows/hello.lobster >/dev/null
token=$(inside lobster serve token new --name test --role approver 2>/dev/null)
asks() { api approvals | grep -q '"status":"open"'; }
until_it asks
read -r gate digest < <(api approvals | python3 -c 'import json,sys; g=json.load(sys.stdin)["gates"][0]; print(g["id"], g["digest"])')

# The question outlives a stop and a kill.
"${podman[@]}" stop --time 30 "$name" >/dev/null
"${podman[@]}" start "$name" >/dev/null
until_it curl -sSf "http://$(address)/healthz"
"${podman[@]}" kill "$name" >/dev/null
"${podman[@]}" start "$name" >/dev/null
until_it curl -sSf "http://$(address)/healthz"
api "approvals/$gate/answer" -d "{\"decision\":\"approve\",\"digest\":\"$digest\"}" >/dev/null
has_ended() { inside grep -qx done /var/lib/lobster/said && inside lobster runs | grep -q ' ok '; }
until_it has_ended
[[ $(inside lobster show hello@- --full) == *"lobster"* ]] || fail "it does not run as its own user"
echo "the image works: schedule, question, stop, kill, answer"
