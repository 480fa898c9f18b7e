"""Graph agents: checked, drawn and run.

The language part knows files and states, not actors: `validate` (with its checks), `draw`, `templates`, `reducers`,
`rules`, `compat`. The running part starts at `decider`, which says what runs next of the `plan` of a graph; `nodes/`
holds what each kind of node does. What a `graph.yaml` may say is in `protocol.graph`.
"""
