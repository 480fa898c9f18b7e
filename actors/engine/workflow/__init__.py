"""DevAll workflows at run time: firing of nodes, messages between them, and the result of a run.

    WorkflowPlan      executable form of a file (`plan`)
    StateMachine      state of one graph's run; `perform` executes one `Firing` of it (`machine/`)
    WorkflowDecider   the machine as a decider; `play` executes it with actors (`decider`)
    Job               the input of a node's own code (`job`; the code is in `nodes/`, with `agents/` and `memory/`)
    WorkflowResult    the result of a run, with those of subgraphs (`results`)

`edges/` has conditions and processors, `messages` the messages between nodes, `rules` the run-time differences between
DevAll's guide and its program, `convert/` an equivalent graph agent. `protocol.workflow` defines the file format. May
import graph/ and conversation/. Start with `machine/machine`, then `play`.
"""
