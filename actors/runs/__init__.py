"""Runs: from the name of a target to an `Outcome`.

`target` finds and reads the files, `root` holds what all runs of a process share, `run` is one run from its first
event to its last. Start with `run`.
"""

from .root import Root
from .run import run
from .target import Found, GraphAgent, LoopAgent, find, load, validate

__all__ = ["Found", "GraphAgent", "LoopAgent", "Root", "find", "load", "run", "validate"]
