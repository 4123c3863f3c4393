#!/bin/sh
# Makes a repository `project` with a branch `topic` that somebody wants merged.
set -eu
cd "$(dirname "$0")"
rm -rf project
git init -q -b main project
cd project
git config user.name "Example" && git config user.email "example@localhost"
printf 'price = 10\n' >shop.conf
printf '# Shop\n' >README.md
git add . && git commit -q -m "The shop"
git switch -q -c topic
printf 'price = 12\ncurrency = EUR\n' >shop.conf
printf 'New prices from Monday.\n' >>README.md
git commit -q -a -m "New prices"
git switch -q main
