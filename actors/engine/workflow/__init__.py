"""DevAll workflows, run: which node may fire when, what its messages become, how a run ends.

`machine/` is a run of one graph as a state machine, and `play` drives it with actors: each `Firing` it hands out
is carried out by what a type of nodes does (`nodes/`, with `agents/` and `memory/`) and by the edges (`edges/`). `plan`
is a workflow made ready, and what nodes are given; `messages` are what they say. `rules` says where DevAll's guide and
its program disagree while a workflow runs; what a file may say is in `protocol.workflow`.
"""
