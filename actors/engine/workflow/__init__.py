"""DevAll workflows at run time: firing of nodes, messages between them, and the result of a run.

`machine/` is the state machine of one graph's run. Its actor executes each `Firing` with the code of the node's
type (`nodes/`, with `agents/` and `memory/`) and with the edges (`edges/`). `plan` is the executable form of a
workflow and the input of node code; `messages` are the messages between nodes. `rules` lists the run-time
differences between DevAll's guide and its program. `protocol.workflow` defines the file format.
"""
