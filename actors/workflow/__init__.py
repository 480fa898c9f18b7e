"""DevAll workflows, run: which node may fire when, what its messages become, how a run ends.

Start with `board`, one run of one graph: a state machine that never waits and never does any I/O. Whoever drives it
has each `Firing` it hands out carried out by `perform`, at once or not, in any order, and brings back what came of it.
`structure` is all that can be known of a graph before it runs. `rules` says where DevAll's guide and its program
disagree while a workflow runs; what a file may say is in `protocol.workflow`.
"""
