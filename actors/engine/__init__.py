"""Deciders of graphs, workflows and conversations, and the driver that executes them.

A decider is a plain object without clock or I/O; the driver passes it the messages of an actor's mailbox and carries
out the effects that it returns. Names to know:

    Decider, BackgroundWork   the interfaces (`driver`)
    Driver                    executes a decider on the mail of an actor (`driver`)
    fold                      replays a journal into a new decider (`driver`)
    Conversation              a conversation with a model, of agents and nodes (`conversation/`)
    GraphDecider              the next nodes of a graph (`graph/`)
    WorkflowDecider           the next firings of a DevAll workflow (`workflow/`)

Each of the three packages has a `decider`, which is pure, and a `run`, which executes it in an actor. `workflow` may
import `graph`, `graph` may import `conversation`, and all import `driver`. May import `work` and `io`, whose packages
carry out the effects, but neither `views` nor `runs`. Start with `driver`.
"""
