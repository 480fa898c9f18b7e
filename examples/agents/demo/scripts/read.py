"""Puts the prompt on one line, at most 60 words of it, since the model behind it is slow at reading."""

import json
import os

words = json.loads(os.environ["GRAPH_STATE"])["initial_prompt"].split()
print(json.dumps({"message": " ".join(words[:60]), "words": len(words)}))
