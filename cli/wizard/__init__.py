"""Setup wizard of `callboard setup`: `setup` orders the questions and makes the test call, `prompts` asks them.

Names to know: `run_setup` and `Setup` in `setup`, `Asker` in `prompts`. The package imports `actors.runs.setup`, which
detects providers and writes the file.

Everything is drawn on stderr. Nothing is written before the last answer, so Ctrl-C leaves nothing behind.
"""
