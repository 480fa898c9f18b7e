"""Takes the subject out of the prompt. A script prints one JSON object; its keys become state."""

import json
import os

state = json.loads(os.environ["GRAPH_STATE"])
print(json.dumps({"subject": state["initial_prompt"].strip() or "the bicycle"}))
