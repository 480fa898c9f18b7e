# The state is JSON in GRAPH_STATE (a big one in the file GRAPH_STATE_FILE). Standard output is the result.
words=$(python3 -c 'import json, os; print(json.loads(os.environ["GRAPH_STATE"])["initial_prompt"])' | wc -w)
echo "{\"words\": $((words))}"
