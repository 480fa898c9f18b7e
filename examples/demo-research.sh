#!/usr/bin/env bash
# Looks questions up in Callboard's own documents, with models that run on this machine. Nobody is asked anything.
set -euo pipefail
callboard=${1:-callboard}
agent=$(dirname "$0")/handbook

ask() {
  echo "\$ callboard run $agent \"$1\"" >&2
  "$callboard" run "$agent" "$1"
}

ask "What is an actor?"
echo
ask "What is an MCP server?"
