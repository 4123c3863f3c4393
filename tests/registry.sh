# Sourced by checks that take packages from public registries. `checked` says
# what is left out when a registry cannot be reached.

skip() { echo "SKIPPED: $checked: $*" && exit 0; }

# Runs an installer. One that fails says why; only a network that is not there is no failure.
fetch() {
  "$@" >fetch.log 2>&1 && return
  grep -qiE 'ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ETIMEDOUT|ENETUNREACH|name resolution|Network is unreachable|NewConnectionError|ConnectTimeout' fetch.log &&
    skip "the registry cannot be reached ($1)"
  cat fetch.log >&2
  exit 1
}
