"""Run the tests after the repair and choose the next node. The tests decide, not the words of the agents."""

import json
import os

from run_tests import run_tests

state = run_tests()
green = "release_note" if os.environ.get("LLM_AGENT_VAR_RELEASE_NOTE") == "yes" else "green"
print(json.dumps({**state, "_next": "red" if state["failed"] else green}))
