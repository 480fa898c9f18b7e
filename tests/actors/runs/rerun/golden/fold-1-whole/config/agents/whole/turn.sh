c=$(python3 -c 'import json, os; print(json.loads(os.environ["GRAPH_STATE"])["chosen"])')
if [ $c = yes ]; then echo "{\"_next\": \"loop\"}"; else echo "{\"_next\": \"kin\"}"; fi
