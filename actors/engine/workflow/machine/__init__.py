"""State machine of one graph's run: synchronous, without I/O.

Start with `machine`, which returns each `Firing` and receives its result. `structure` is the static analysis of a
graph. `perform` executes one firing, with `dynamic` (maps and trees) and `loops` (gates). `result` is the outcome.
The package uses messages, rules and edges, and does not depend on its driver.
"""
