#!/usr/bin/env bash
# Runs a silent command and prints the elapsed seconds: `elapsed.sh WHAT COMMAND...`. On a terminal one line is
# rewritten, elsewhere a line is printed every five seconds. The output of the command is printed only if it fails.
what=$1
shift
log=$(mktemp)
trap 'rm -f "$log"' EXIT
"$@" > "$log" 2>&1 &
pid=$!
trap 'kill "$pid" 2> /dev/null; exit 130' INT TERM
seconds=0
printf '%s' "$what"
[ -t 1 ] || printf '\n'
while kill -0 "$pid" 2> /dev/null; do
  if [ -t 1 ]; then printf '\r\033[K%s, %d s' "$what" "$seconds"; elif [ $((seconds % 5)) -eq 4 ]; then echo "  $((seconds + 1)) s"; fi
  # A wait of a second that ends with the command.
  for _ in 1 2 3 4 5; do kill -0 "$pid" 2> /dev/null && sleep 0.2; done
  seconds=$((seconds + 1))
done
wait "$pid"
status=$?
[ -t 1 ] && printf '\r\033[K'
if [ "$status" -ne 0 ]; then cat "$log"; fi
exit "$status"
