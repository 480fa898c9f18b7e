"""Graph agents: validation, drawing and execution.

Modules that work on files and states, without actors: `validate` and its checks, `draw`, `templates`, `reducers`,
`rules`, `compat`. Execution starts at `decider`, which selects the next nodes of a `plan`; `nodes/` executes each
kind of node. `protocol.graph` defines the format of `graph.yaml`.
"""
