"""Deciders of graphs, workflows and conversations, and the driver that executes them.

A decider is a plain object without clock or I/O; the driver passes it the messages of an actor's mailbox and carries
out the effects that it returns. Five names to know:

    Decider, BackgroundWork   the interfaces (`interfaces`)
    Driver                    executes a decider on the mail of an actor (`driver`)
    fold                      replays a journal into a new decider (`recovery`)
    GraphDecider              the next nodes of a graph (`graph/`)
    Conversation              a conversation with a model, of agents and nodes (`conversation/`)

`workflow/` has DevAll's workflows. May import `work` and `io`, whose packages carry out the effects, but neither
`views` nor `runs`. Start with `driver`.
"""
