#!/bin/sh
# Prints the mails of the inbox beside this script as a JSON array.
set -eu
cd "$(dirname "$0")/inbox"
separator='['
for mail in *.eml; do
  printf '%s{"file":"%s","bytes":%s}' "$separator" "$mail" "$(wc -c <"$mail" | tr -d ' ')"
  separator=','
done
[ "$separator" = '[' ] && printf '['
printf ']\n'
