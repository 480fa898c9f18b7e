"""State machine of one graph's run: synchronous, without I/O.

`machine` returns each `Firing` and receives its result. `structure` is the static analysis of a graph. `perform`
executes one firing, also in units (maps and trees); `gates` are the nodes of loops. The package uses messages, rules
and edges, and does not depend on its driver. Start with `machine`.
"""
