"""Graph agents (Loki's `graph.yaml`): validation, drawing and execution.

    check_graph      all checks of a file (`validate`, with `*_checks`)
    GraphPlan        a graph ready to run (`plan`, made by `compile`)
    GraphDecider     selects the next nodes (`decider`; `map_decider` within a map)
    NodeJob          what the executor of a node receives; it returns a `NodeResult` (`nodes/`, one per kind)
    compile_template the language of texts in a file (`templates`)

`run` executes a graph and each of its nodes, `node_exit` decides what follows a node. Modules that work on files and
states, without actors: `validate`, `draw`, `templates`, `reducers`, `rules`, `compat`. `protocol.graph` defines the
format. May import conversation/ and `driver`, not workflow/. Start with `decider`.
"""
