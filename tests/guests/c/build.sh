#!/usr/bin/env bash
# Builds files.c and fetches.c into dist/ with zig, which brings a current C library for WASI:
#   pip install ziglang==0.17.0 && build.sh
# The version is the one that the checked-in files were built with; others give other bytes.
set -euo pipefail
cd "$(dirname "$0")"
zig=$(command -v zig || command -v python-zig) || { echo "build.sh: there is no zig" >&2 && exit 1; }
[[ $("$zig" version) == 0.17.0 ]] || { echo "build.sh: this needs zig 0.17.0 (pip install ziglang==0.17.0)" >&2 && exit 1; }
"$zig" cc -target wasm32-wasi -Os -Wall -Wextra -Werror -std=c11 -D_GNU_SOURCE -Wl,--strip-all files.c -o ../dist/files.wasm
sdk=../../../guest-steps/c
"$zig" cc -target wasm32-wasi -mexec-model=reactor -Os -Wall -Wextra -Werror -std=c11 -D_GNU_SOURCE -Wl,--strip-all -I "$sdk" fetches.c \
    "$sdk"/{json.c,lobster_http.c,lobster_step.c,gen/step.c,gen/step_component_type.o} -o ../dist/fetches.wasm
