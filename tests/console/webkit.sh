#!/usr/bin/env bash
# The console in WebKit, the engine of Safari: each page fits, a run appears, a question is answered, a file is checked.
#   tests/console/webkit.sh LOBSTER
# Needs node, WebKitGTK's driver and a display or Xvfb; installs Debian's where it may. What cannot be had is said, and skipped.
set -euo pipefail
lobster=$(realpath "$1")
here=$(cd "$(dirname "$0")" && pwd)
checked="the console is not looked at in WebKit"
source "$here/../registry.sh"
needs() { ! { command -v WebKitWebDriver && command -v xvfb-run && command -v node; } >/dev/null; }
if needs && [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends webkit2gtk-driver xvfb xauth nodejs; } >/dev/null 2>&1 || true
fi
if needs; then skip "there is no WebKit with a driver, and installing one needs root and apt"; fi
browser=$(find /usr/lib -path '*webkit*' -name MiniBrowser 2>/dev/null | sort | tail -n 1)
[[ -n $browser ]] || skip "the driver came without a browser"

source "$here/world.sh"
# A sandbox of the browser's own needs what containers do not give.
WEBKIT_DISABLE_SANDBOX_THIS_IS_DANGEROUS=1 WEBKIT_DISABLE_COMPOSITING_MODE=1 \
  xvfb-run --auto-servernum node "$here/webkit.mjs" "$browser" "$link"
