"""Setup wizard of `callboard setup`: `steps` orders the questions, `prompts` asks them, `trial` makes the test call.

Names to know: `Setup` in `steps`, `Asker` in `prompts`, `run_setup` in `setup`. The package imports
`actors.runs.setup`, which detects providers and writes the file.

Everything is drawn on stderr. Nothing is written before the last answer, so Ctrl-C leaves nothing behind.
"""
