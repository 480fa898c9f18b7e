"""Sends the run to `short` or `long`, and leaves behind by how much the limit was passed."""

import json
import os

state = json.loads(os.environ["GRAPH_STATE"])
over = state["words"] - state["limit"]
print(json.dumps({"_next": "long", "over": over} if over > 0 else {"_next": "short"}))
