"""Vocabulary: messages, events, and the format of every file that a user writes.

This layer has msgspec structs, and pure code that reads and checks them. It does no I/O, does not import trio, and
does not know its senders and receivers. Start with `events` (reports of a run) and `graph` (contents of a
`graph.yaml`). `errors` lists every error by name.
"""
