"""What `callboard setup` asks: `steps` is the order of the questions, `asking` how they are put, `trial` the test call.

All is drawn on stderr. Nothing is written before the last question has been answered, so Ctrl-C leaves nothing behind.
"""
