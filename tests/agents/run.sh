#!/usr/bin/env bash
# Four coding agents in the jail of the node template, against a fake model: run.sh BINARY [DIR]
# Installs them from npm into DIR (target/agents), and skips where npm or its registry cannot be had.
set -euo pipefail
binary=$(realpath "$1")
cd "$(dirname "$0")/../.."
packages=${2:-target/agents}
mkdir -p "$packages"
if ! command -v npm >/dev/null || ! npm install --prefix "$packages" --no-audit --no-fund --ignore-scripts \
  @anthropic-ai/claude-code @openai/codex opencode-ai @google/gemini-cli; then
  echo "skipped: npm or its registry cannot be had"
  exit
fi
# The programs of these two are put in place by their own scripts.
(cd "$packages/node_modules/@anthropic-ai/claude-code" && node install.cjs)
(cd "$packages/node_modules/opencode-ai" && node postinstall.mjs)
exec tests/agents/check.py "$binary" "$packages"
