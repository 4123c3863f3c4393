#!/usr/bin/env bash
# Builds step-name.wasm (about 22 MB: it holds CPython and its library). Needs python 3.10 or
# newer; componentize-py and what requirements.txt or pyproject.toml names come by pip.
set -euo pipefail
cd "$(dirname "$0")"
command -v python3 >/dev/null || { echo "python3 is not on PATH: https://www.python.org/downloads" >&2 && exit 127; }
exec python3 lobster_build.py step-name.wasm "$@"
