#!/usr/bin/env bash
# Runs `cargo build` for WebAssembly with the Rust that is there, and says what is missing.
#
# Two ways: a toolchain that has the target wasm32-wasip2 (rustup's, or a distribution's that
# packs it), or Debian's and Ubuntu's rustc with the source of std, which is then built, too.
# WASM_CARGO=rustup|system chooses one; SYSTEM_RUST is where the distribution's is (/usr/bin).
set -euo pipefail

target=wasm32-wasip2
words=(build --release --target "$target" --lib "$@")
if [[ -f src/main.rs && ! -f src/lib.rs ]]; then words=(build --release --target "$target" "$@"); fi

missing() {
  echo "cannot build for $target: $1" >&2
  exit 127
}

sysroot_has_target() { [[ -d $("$1" --print sysroot 2>/dev/null)/lib/rustlib/$target ]]; }

if [[ ${WASM_CARGO:-rustup} == rustup ]] && command -v cargo >/dev/null && command -v rustc >/dev/null && sysroot_has_target rustc; then
  exec cargo "${words[@]}"
fi

# A distribution's Rust, whose std for WebAssembly is made from source.
system=${SYSTEM_RUST:-/usr/bin}
rustc=$system/rustc cargo=$system/cargo
if [[ ! -x $cargo || ! -x $rustc ]]; then
  if command -v rustup >/dev/null; then
    used=$(rustc --version 2>/dev/null) || missing "rustup has no toolchain to use. Run: rustup default stable, then: rustup target add $target"
    missing "the toolchain in use ($used) lacks it. Run: rustup target add $target"
  fi
  missing "there is no Rust. Get it from https://rustup.rs, then run: rustup target add $target"
fi
if sysroot_has_target "$rustc"; then RUSTC=$rustc exec "$cargo" "${words[@]}"; fi

version=$("$rustc" --version | cut -d' ' -f2)
rustup_cure="or use rustup (https://rustup.rs): rustup target add $target"
source=$("$rustc" --print sysroot)/lib/rustlib/src/rust/library
[[ -f $source/Cargo.toml ]] || missing "$rustc $version has no std for it, and the source to build one is not installed. Debian, Ubuntu: apt-get install rust-src (rust-web-src beside rustc-web); $rustup_cure"
[[ $(printf '%s\n' 1.85 "$version" | sort -V | head -1) == 1.85 ]] || missing "$rustc is $version, and the template needs 1.85 or newer. Debian bookworm: apt-get install rustc-web cargo-web rust-web-src; $rustup_cure"
# The linker that makes a component of a module comes with rustup's toolchains, or by cargo.
linker=$(command -v wasm-component-ld || true)
if [[ -z $linker ]]; then
  for tools in "${RUSTUP_HOME:-$HOME/.rustup}"/toolchains/*/lib/rustlib/*/bin; do
    [[ -x $tools/wasm-component-ld ]] && linker=$tools/wasm-component-ld && PATH=$PATH:$tools && break
  done
fi
[[ -n $linker ]] || missing "the linker wasm-component-ld is missing. Run: cargo install wasm-component-ld; $rustup_cure"
command -v wasm-ld rust-lld >/dev/null || missing "the linker wasm-ld is missing. Debian, Ubuntu: apt-get install lld"
wasi=
for place in /usr/lib/wasm32-wasi /usr/wasm32-wasi/lib /usr/share/wasi-sysroot/lib/wasm32-wasip2; do
  [[ -z $wasi && -f $place/libc.a && -f $place/crt1-reactor.o ]] && wasi=$place
done
[[ -n $wasi ]] || missing "WASI's C library is missing. Debian, Ubuntu: apt-get install wasi-libc; $rustup_cure"

export RUSTC=$rustc RUSTC_BOOTSTRAP=1 PATH
export CARGO_TARGET_WASM32_WASIP2_RUSTFLAGS="-C linker=$linker -C link-self-contained=no -C link-arg=$wasi/crt1-reactor.o -L native=$wasi"
exec "$cargo" "${words[@]}" -Z build-std=std,panic_abort
