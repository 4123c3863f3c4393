#!/usr/bin/env bash
# Builds step-name.wasm (about 18 MB: it holds CPython). Needs python 3; the tool comes by pip.
set -euo pipefail
cd "$(dirname "$0")"
tool=$(command -v componentize-py || true)
if [[ -z $tool ]]; then
  [[ -x .venv/bin/componentize-py ]] || { python3 -m venv .venv && .venv/bin/pip install --quiet -r requirements.txt; }
  tool=$PWD/.venv/bin/componentize-py
fi
# --stub-wasi: no clock, no randomness, no files. Leave it out if the step needs
# a grant for one of them.
"$tool" -d wit -w step componentize app --stub-wasi -o step-name.wasm
