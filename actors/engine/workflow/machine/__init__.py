"""State machine of one graph's run: synchronous, without I/O.

    StateMachine   returns each firing and receives its result (`machine`)
    Structure      static analysis of a graph: layers and cycles (`structure`)
    Firing, Said   one firing and the result of its node's code, executed by `perform`, also in units (maps and trees)

Custom node types import `Said` from `machine.perform`. May import the modules `messages`, `rules` and `edges`, and
`graph.result` and `graph.templates`; does not depend on its driver. Start with `machine`.
"""
