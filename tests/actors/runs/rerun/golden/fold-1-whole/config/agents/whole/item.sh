n=$(python3 -c 'import json, os; print(json.loads(os.environ["GRAPH_STATE"])["it"])')
echo item-$n >> /tmp/golden-recorded/world
if [ "$(cat /tmp/golden-recorded/world.kill 2>/dev/null)" = item-$n ]; then rm /tmp/golden-recorded/world.kill; kill -9 $HOST; sleep 10; fi
a=$(python3 -c 'import json, os; print(json.loads(os.environ["GRAPH_STATE"])["answer"])')
echo "{\"done_item\": \"$a $n\"}"
