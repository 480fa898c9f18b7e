"""A run of one graph as a state machine, which never waits and never does any I/O.

Start with `machine`: it hands out each `Firing`, and takes back what came of it. `structure` is all that can be known
of a graph before it runs, `perform` one firing, with `dynamic` (maps and trees) and `loops` (gates); `result` is how it
ends. It knows messages, rules and edges, and not its driver.
"""
