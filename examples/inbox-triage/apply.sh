#!/bin/sh
# Reads one JSON object a line and files a copy of each mail under its category.
set -eu
cd "$(dirname "$0")"
out=${LOBSTER_ARG_OUT:-triaged}
while IFS= read -r line; do
  file=$(printf '%s' "$line" | sed -n 's/.*"file":"\([A-Za-z0-9._-]*\)".*/\1/p')
  category=$(printf '%s' "$line" | sed -n 's/.*"category":"\([a-z_]*\)".*/\1/p')
  [ -n "$file" ] && [ -n "$category" ] || { echo "cannot read: $line" >&2; exit 1; }
  mkdir -p "$out/$category"
  cp "inbox/$file" "$out/$category/$file"
  echo "$category/$file"
done
