#!/usr/bin/env bash
# Makes a project of every template as an author would, builds it and runs its
# cases.
#
#   check.sh LOBSTER [LANGUAGE...]
#
# A language whose tools are not here, or whose tools' registry cannot be
# reached, is skipped, and that is said.
set -euo pipefail
lobster=$(realpath "${1:?check.sh LOBSTER [LANGUAGE...]}")
shift
here=$(cd "$(dirname "$0")" && pwd)
languages=("${@:-}")
[[ -n ${languages[0]} ]] || languages=(c js python rust)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export LOBSTER_STATE_DIR=$dir/state
unreachable='ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ETIMEDOUT|ENETUNREACH|name resolution|Network is unreachable|NewConnectionError|ConnectTimeout'

# What is missing for a language; nothing if it can be built.
missing() {
  case $1 in
    c) "$here/../c/wasm-cc.sh" --version >/dev/null 2>"$dir/why" || head -1 "$dir/why" ;;
    js) command -v npm >/dev/null || echo "npm is not installed" ;;
    python) python3 -c 'import venv' 2>/dev/null || echo "python 3 with venv is not installed" ;;
    rust)
      [[ -x /usr/bin/cargo && -e /usr/lib/rustlib/src/rust ]] ||
        [[ -d $(rustc --print sysroot)/lib/rustlib/wasm32-wasip2 ]] || echo "there is no target wasm32-wasip2" ;;
  esac
}

# Debian's Rust has no prebuilt target: it builds std itself, and links with rustup's linker.
debian_rust() {
  [[ -d $(rustc --print sysroot)/lib/rustlib/wasm32-wasip2 ]] && return
  local host tools wasi=/usr/lib/wasm32-wasi
  host=$(/usr/bin/rustc -vV | sed -n 's/^host: //p')
  tools=$(echo "${RUSTUP_HOME:-$HOME/.rustup}"/toolchains/stable-"$host"/lib/rustlib/"$host"/bin)
  mkdir -p "$dir/debian"
  ln -sf /usr/bin/cargo /usr/bin/rustc "$dir/debian"
  export PATH="$dir/debian:$PATH:$tools" RUSTC=/usr/bin/rustc RUSTC_BOOTSTRAP=1 CARGO_UNSTABLE_BUILD_STD=std,panic_abort
  export CARGO_TARGET_WASM32_WASIP2_RUSTFLAGS="-C linker=$tools/wasm-component-ld -C link-self-contained=no -C link-arg=$wasi/crt1-reactor.o -L native=$wasi"
}

built=0
for language in "${languages[@]}"; do
  lacking=$(missing "$language")
  if [[ -n $lacking ]]; then
    echo "SKIPPED: the template for $language: $lacking"
    continue
  fi
  project=$dir/tidy-$language
  (
    [[ $language != rust ]] || debian_rust
    "$lobster" step new --lang "$language" "tidy-$language" --dir "$project" >/dev/null
    "$lobster" step build "$project" >"$dir/log" 2>&1
  ) || {
    if grep -qiE "$unreachable" "$dir/log"; then
      echo "SKIPPED: the template for $language: its registry cannot be reached"
      continue
    fi
    cat "$dir/log" >&2
    echo "FAILED: the template for $language does not build" >&2
    exit 1
  }
  "$lobster" step test "$project" >"$dir/log" || { cat "$dir/log" >&2 && exit 1; }
  echo "$language: $(tail -1 "$dir/log"), $(stat -c %s "$project"/*.wasm) bytes"
  built=$((built + 1))
done
echo "$built templates build and pass as they are generated"
