#!/bin/sh
# Puts a message into outbox.txt. A real one: mail -s "Releases" ops@example.org
set -eu
cat >>"$LOBSTER_WORKFLOW_DIR/outbox.txt"
echo "notified"
