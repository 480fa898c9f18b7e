#!/usr/bin/env bash
# Runs the demo agent: asks at the terminal when there is one, answers by itself otherwise.
set -euo pipefail
callboard=${1:-callboard}
agent=$(dirname "$0")/agents/demo
message="Since this morning the app shows an error and I cannot pay my order. Please help, it is urgent!"

answers=()
if ! [ -t 0 ] || ! [ -t 2 ]; then
  answers=(--answer send)
fi
echo "\$ callboard run $agent \"$message\" ${answers[*]}" >&2
exec "$callboard" run "$agent" "$message" "${answers[@]}" </dev/stdin
