"""Runs: from the name of a target to an `Outcome`.

`target` finds and reads the files, `root` holds what all runs of a process share, `run` is one run from its first
event to its last. Start with `run`. Nothing is imported here: checking a file needs no event loop.
"""
