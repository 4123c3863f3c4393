#!/bin/sh
# Plays a source of figures: `stock` fails the first time, as services do.
set -eu
case $1 in
sales) echo '{"source":"sales","total":1240}' ;;
stock)
  if [ ! -e "$LOBSTER_WORKFLOW_DIR/stock.tried" ]; then
    touch "$LOBSTER_WORKFLOW_DIR/stock.tried"
    echo "stock: the service is busy" >&2
    exit 1
  fi
  echo '{"source":"stock","total":87}'
  ;;
returns) echo '{"source":"returns","total":3}' ;;
esac
