#!/bin/sh
# project.sh LANGUAGE FOLDER: a new project with this folder's step in it.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
language=$1 project=$2
lobster step new --lang "$language" "fetch-$language" --dir "$project" >/dev/null
rm -rf "$project/cases" && mkdir "$project/cases"
case $language in
c) cp "$here/step.c" "$project/" ;;
go) sed "s/step-name/fetch-go/" "$here/step.go" >"$project/step.go" ;;
js) cp "$here/step.js" "$project/" ;;
python) cp "$here/app.py" "$project/" ;;
rust)
  cp "$here/lib.rs" "$project/src/"
  sed -i 's/^\[dependencies\]/&\nwaki = "0.5"/' "$project/Cargo.toml"
  ;;
ts) cp "$here/step.ts" "$project/" ;;
esac
