#!/usr/bin/env bash
# Builds the Rust steps into dist/*.wasm and writes dist/LOCK.
#
#   build.sh [STEP...]       build these steps, or all
#   build.sh --check         build everything elsewhere and compare with dist/, bit for bit
#   build.sh --list          the steps
#   --route debian|rustup    which toolchain (default: debian where it is installed)
#
# Two routes, the same sources and lock file:
#   rustup  the toolchain in use, with the prebuilt std of its WebAssembly targets
#   debian  Debian's rustc-web, which builds std from source (-Z build-std)
# What is in dist/ was built by the Debian route, with the versions that LOCK
# names. Only that route gives the same bytes again; the rustup route gives
# steps that behave the same.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

route=
check=
steps=()
while [[ $# -gt 0 ]]; do
  case "$1" in
    --check) check=1 ;;
    --list) list=1 ;;
    --route) route=${2:?--route needs a value} && shift ;;
    -*) echo "build.sh: unknown option $1" >&2 && exit 2 ;;
    *) steps+=("$1") ;;
  esac
  shift
done

# A step is a member that names its target in [package.metadata.lobster].
tests=$(realpath "$here/../tests/guests")
target_of() { sed -n '/^\[package.metadata.lobster\]/,/^\[/s/^target = "\(.*\)"$/\1/p' "$here/rust/$1/Cargo.toml"; }
package_of() { sed -n '/^\[package\]/,/^\[/s/^name = "\(.*\)"$/\1/p' "$here/rust/$1/Cargo.toml"; }
# Where the checked-in program is: what only tests and benchmarks run is no ready step.
dist_of() { if [[ $1 == hostile* || $1 == greet || $1 == request ]]; then echo "$tests/dist"; else echo "$here/dist"; fi; }
lock=$here/dist/LOCK
all=()
for manifest in "$here"/rust/*/Cargo.toml; do
  name=$(basename "$(dirname "$manifest")")
  [[ -z $(target_of "$name") ]] || all+=("$name")
done
if [[ -n ${list:-} ]]; then printf '%s\n' "${all[@]}" && exit; fi
for name in "${steps[@]}"; do
  [[ " ${all[*]} " == *" $name "* ]] || { echo "build.sh: no step $name; there are: ${all[*]}" >&2 && exit 2; }
done
if [[ ${#steps[@]} -eq 0 || -n $check ]]; then steps=("${all[@]}"); fi

debian_source=/usr/lib/rustlib/src/rust
if [[ -z $route ]]; then
  if [[ -x /usr/bin/cargo && -e $debian_source ]]; then route=debian; else route=rustup; fi
fi

cargo_home=${CARGO_HOME:-$HOME/.cargo}
# No path of this machine may reach the component: panic messages carry file names.
remap=(
  "--remap-path-prefix=$here/rust=/steps"
  "--remap-path-prefix=$(echo "$cargo_home"/registry/src/*/ | head -c 4096 | tr ' ' '\n' | head -1)=/crates/"
)
case "$route" in
  debian)
    # The linker that wraps a module into a component exists only in rustup's toolchains.
    host=$(/usr/bin/rustc -vV | sed -n 's/^host: //p')
    tools=$(echo "${RUSTUP_HOME:-$HOME/.rustup}"/toolchains/stable-"$host"/lib/rustlib/"$host"/bin)
    [[ -x $tools/wasm-component-ld ]] || { echo "build.sh: no wasm-component-ld in $tools; run: rustup toolchain install stable" >&2 && exit 1; }
    export RUSTC_BOOTSTRAP=1 RUSTC=/usr/bin/rustc PATH="$PATH:$tools"
    cargo=/usr/bin/cargo
    build_std=(-Z build-std=std,panic_abort)
    linker=(-C "linker=$tools/wasm-component-ld")
    remap+=("--remap-path-prefix=$(realpath $debian_source)=/rustc" "--remap-path-prefix=$debian_source=/rustc")
    wasi=/usr/lib/wasm32-wasi
    wasi_flags=(-C link-self-contained=no -C "link-arg=$wasi/crt1-reactor.o" -L "native=$wasi")
    toolchain="debian-$(dpkg-query -W -f '${Version}' rustc-web) wasi-libc-$(dpkg-query -W -f '${Version}' wasi-libc) $(wasm-component-ld --version | tr ' ' '-')"
    ;;
  rustup)
    cargo=cargo
    build_std=()
    linker=()
    wasi_flags=()
    toolchain="rustup-$(rustc --version | cut -d ' ' -f 2)"
    ;;
  *) echo "build.sh: no route $route; there are debian and rustup" >&2 && exit 2 ;;
esac

scratch=
if [[ -n $check ]]; then
  [[ $route == debian ]] || { echo "build.sh: only the debian route gives the bytes of dist/" >&2 && exit 2; }
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
fi
# Where a program is put.
out_of() { if [[ -n $scratch ]]; then echo "$scratch/$1.wasm"; else echo "$(dist_of "$1")/$1.wasm"; fi; }

build() {
  local name=$1 target=$2 out package flags=("${remap[@]}" "${linker[@]}")
  out=$(out_of "$name")
  mkdir -p "$(dirname "$out")"
  package=$(package_of "$name")
  case "$target" in
    wasm32-wasip2) flags+=("${wasi_flags[@]}") ;;
    # rustup's wasm32-unknown-unknown links plain modules by default.
    wasm32-unknown-unknown) [[ $route == debian ]] || flags+=(-C linker=wasm-component-ld) ;;
  esac
  (cd "$here/rust" &&
    CARGO_ENCODED_RUSTFLAGS=$(IFS=$'\x1f' && echo "${flags[*]}") \
      "$cargo" build --locked --release --quiet "${build_std[@]}" --target "$target" -p "$package" --lib)
  local built=${CARGO_TARGET_DIR:-$here/rust/target}/$target/release/${package//-/_}.wasm
  # Copied only if it differs, so that nothing downstream is rebuilt for nothing.
  cmp -s "$built" "$out" || cp "$built" "$out"
}

# name, BLAKE3 (what a workflow writes as `component: blake3:<digest>`), bytes, target, toolchain
line() {
  local out
  out=$(out_of "$1")
  echo "$1 $(b3sum --no-names "$out") $(stat -c %s "$out") $2 $toolchain"
}

lines=()
for name in "${steps[@]}"; do
  target=$(target_of "$name")
  build "$name" "$target"
  lines+=("$(line "$name" "$target")")
  echo "${lines[-1]}" | cut -d ' ' -f 1-4
done

if [[ -n $check ]]; then
  failed=0
  for entry in "${lines[@]}"; do
    name=${entry%% *}
    cmp "$scratch/$name.wasm" "$(dist_of "$name")/$name.wasm" || failed=1
    grep -qxF "$entry" "$lock" || { echo "LOCK differs: $entry" >&2 && failed=1; }
  done
  [[ $failed == 0 ]] && echo "all ${#lines[@]} steps are what their sources give"
  exit $failed
fi

touch "$lock"
{
  for entry in "${lines[@]}"; do echo "$entry"; done
  while read -r entry; do
    [[ " ${steps[*]} " == *" ${entry%% *} "* ]] || echo "$entry"
  done <"$lock"
} | sort >"$lock.new"
mv "$lock.new" "$lock"
if [[ $route == debian && ${#steps[@]} -eq ${#all[@]} ]]; then "$here/sources.sh" --write rust; fi
