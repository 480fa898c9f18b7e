#!/usr/bin/env bash
# Run a command beside N processes that keep the processors busy, and end those with it:
#   beside_busy_loops.sh 8 make test
set -u
count=$1
shift
for _ in $(seq "$count"); do
  sh -c "while kill -0 $$ 2>/dev/null; do i=0; while [ \$i -lt 200000 ]; do i=\$((i + 1)); done; done" &
done
"$@"
code=$?
kill $(jobs -p) 2>/dev/null
wait
exit $code
