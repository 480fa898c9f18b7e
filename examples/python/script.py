"""A script: one question, one answer. The model is `CALLBOARD_MODEL`, or one whose key is in the environment."""

import callboard

clerk = callboard.Agent(name="clerk", instructions="You answer in one word.")
print(callboard.run_sync(clerk, "What is the capital of France?").unwrap())
