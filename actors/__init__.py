"""Actors of a run: graphs and their nodes, agents, models, tools, and the front ends that start runs.

Nothing here prints or reads a terminal: results are returned, everything else is an event or a question. Start
with `runs` (what `callboard.run` does), then `engine/driver`.
"""
