r=$(python3 -c 'import json, os; print(json.loads(os.environ["GRAPH_STATE"])["round"])')
echo loop-$r >> /tmp/golden-recorded/world
if [ "$(cat /tmp/golden-recorded/world.kill 2>/dev/null)" = loop-$r ]; then rm /tmp/golden-recorded/world.kill; kill -9 $HOST; sleep 10; fi
echo "{\"round\": $((r+1))}"
