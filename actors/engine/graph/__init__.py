"""Graph agents (Loki's `graph.yaml`): validation, drawing and execution.

    check_graph      all checks of a file (`validate`, with `node_checks`)
    GraphPlan        a graph ready to run (`plan`, made by `compile`)
    GraphDecider     selects the next nodes (`decider`; `map_decider` within a map)
    GraphResult      output, state and error of a run (`result`)
    NodeJob          input of a node's executor, which returns a `NodeResult` (`plan`; the executors are in `nodes/`)
    compile_template the language of texts in a file (`templates`)

`run` executes a graph and each of its nodes, `node_exit` decides what follows a node. Modules that work on files and
states, without actors: `validate`, `draw`, `edges`, `templates`, `reducers`, `input_validation`, `compat`.
`protocol.graph` defines the format. May import conversation/ and `driver`, not workflow/. Start with `decider`.
"""
