"""Who does the work: graphs and their nodes, agents, models, and the runs that hold them together.

Nothing here prints or reads a terminal: results are returned, everything else is an event or a question. Start
with `runs` (what `callboard.run` does), then `engine/driver`.
"""
