"""Vocabulary of the actor kernel (`supervisors`): its errors, events, messages and questions. No I/O, no trio.

It imports only msgspec, so that the kernel can be used without the rest of Callboard.

Five names to know:

    Message           base class of everything that an actor receives (`messages`)
    CallboardError    base class of all errors, with a stable code and an exit code (`errors`)
    Event, EventData  envelope and payload of an event (`events`)
    Question, Answer  a question to a user and its answer (`questions`)
    head_of, tail_of  shorten a text between words, so that redaction still finds secrets (`text_cuts`)

Start with `messages`.
"""
