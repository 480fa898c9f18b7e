"""Setup wizard of `callboard setup`: `steps` orders the questions, `prompts` asks them, `trial` makes the test call.

Everything is drawn on stderr. Nothing is written before the last answer, so Ctrl-C leaves nothing behind.
"""
