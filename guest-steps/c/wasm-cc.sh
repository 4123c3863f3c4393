#!/usr/bin/env bash
# A C compiler for WebAssembly with WASI's C library: finds one and runs it with
# the arguments given. In this order: $WASI_SDK_PATH, zig, clang with wasi-libc.
set -euo pipefail

if [[ -n ${WASI_SDK_PATH:-} ]]; then
  [[ -x $WASI_SDK_PATH/bin/clang ]] || { echo "WASI_SDK_PATH=$WASI_SDK_PATH: there is no bin/clang" >&2 && exit 127; }
  exec "$WASI_SDK_PATH/bin/clang" --target=wasm32-wasip1 "$@"
fi
if command -v zig >/dev/null; then exec zig cc -target wasm32-wasi "$@"; fi
# What `pip install ziglang` gives.
if command -v python-zig >/dev/null; then exec python-zig cc -target wasm32-wasi "$@"; fi

# Where Debian and Ubuntu put the C library, and Fedora.
missing="clang"
for clang in clang clang-{22..14}; do
  command -v "$clang" >/dev/null || continue
  sysroot=
  for place in /usr /usr/share/wasi-sysroot /usr/wasm32-wasi; do
    for target in wasm32-wasi wasm32-wasip1; do
      [[ -z $sysroot && -e $place/lib/$target/libc.a ]] && sysroot=$place && found=$target
    done
  done
  [[ -n $sysroot ]] || { missing="WASI's C library (wasi-libc)" && continue; }
  # Debian's clang looks for the linker by its version.
  version=$("$clang" -dumpversion)
  linker=$("$clang" --target="$found" -print-prog-name=wasm-ld)
  command -v "$linker" "wasm-ld-${version%%.*}" >/dev/null || { missing="the linker wasm-ld of the same version as $clang (lld)" && continue; }
  builtins=$("$clang" --target="$found" --rtlib=compiler-rt -print-libgcc-file-name)
  [[ -e $builtins ]] || { missing="compiler-rt for WebAssembly of the same version as $clang (libclang-rt-dev-wasm32)" && continue; }
  exec "$clang" --target="$found" --sysroot="$sysroot" "$@"
done
cat >&2 <<TEXT
no C compiler for WebAssembly: $missing is missing. Any one of these will do:
  Debian, Ubuntu: apt-get install clang lld wasi-libc libclang-rt-dev-wasm32
  any system:     pip install ziglang, or zig from https://ziglang.org/download
  any system:     a wasi-sdk from https://github.com/WebAssembly/wasi-sdk/releases, with WASI_SDK_PATH set to it
TEXT
exit 127
