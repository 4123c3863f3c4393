# Sourced by checks that look at the console: a server with workflows and one of each kind of run.
# Takes `lobster` and `here`; gives `place`, CONSOLE_URL and `link`, and ends what it began.

place=$(mktemp -d)
server=
stop() {
  if [[ -n $server ]]; then kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; fi
  # What the server started may still be ending.
  rm -rf "$place" 2>/dev/null || { sleep 2; rm -rf "$place"; }
}
trap stop EXIT
mkdir "$place/flows"
cp "$here"/*.lobster "$place/flows"
export LOBSTER_STATE_DIR=$place/state LOBSTER=$lobster CONSOLE_DIR=$place/flows LOBSTER_ACTOR=ann
cd "$place/flows"
"$lobster" schedule register --trust report.lobster >/dev/null
"$lobster" serve --listen 127.0.0.1:0 --workflows "$place/flows" 2>"$place/said" &
server=$!
until grep -q 'listens on' "$place/said"; do sleep 0.1; done
CONSOLE_URL=$(grep -o 'http:[^ ]*' "$place/said" | head -n 1)
export CONSOLE_URL
# One of each kind of run.
"$lobster" run --mode tool broken.lobster >/dev/null || true
for flow in approve ask; do "$lobster" run --mode tool $flow.lobster >/dev/null || true; done
link=$("$lobster" serve link --name ben --role admin --url "$CONSOLE_URL")
