"""Graph agents: checked, drawn and run.

The language part knows files and states, not actors: `validate` (with its checks), `draw`, `templates`, `reducers`,
`rules`, `compat`. The running part starts at `scheduler`, which runs the `plan` of a graph; `nodes/` holds what each
kind of node does. What a `graph.yaml` may say is in `protocol.graph`.
"""
