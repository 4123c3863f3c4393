#!/bin/sh
# Plays a service that wants a token, and carelessly repeats it.
set -eu
[ -n "${API_TOKEN:-}" ] || { echo "no token" >&2; exit 1; }
echo "deployed with token $API_TOKEN"
