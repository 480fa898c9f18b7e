"""DevAll workflows at run time: firing of nodes, messages between them, and the result of a run.

    WorkflowPlan      executable form of a file (`plan`)
    StateMachine      state of one graph's run; `perform` executes one `Firing` of it (`machine/`)
    WorkflowDecider   the machine as a decider (`decider`)
    run_workflow      executes the decider with actors and returns a `WorkflowResult` (`run`)
    Job               the input of a node's own code (`job`; the code is in `nodes/`, with the stores of `memory/`)
    convert           an equivalent graph agent (`convert`)

`edges` has conditions, processors and splits; `edge_functions` calls those that the user wrote, `matching` limits
regular expressions. `messages` has the messages between nodes, `workspace` the directory of code, `rules` the run-time
differences between DevAll's guide and its program. `workers/` has programs of other processes. `protocol.workflow`
defines the file format. May import graph/ and conversation/. Start with `machine/machine`, then `run`.
"""
