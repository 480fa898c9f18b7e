"""The vocabulary: messages, events, and the shape of every file a user writes.

This floor holds msgspec structs and the pure code that reads and checks them. It does no I/O, imports no
trio and knows nothing of who sends or receives. Start with `events` (what a run tells the world) and `graph`
(what a `graph.yaml` may say); `errors` lists everything that can go wrong by name.
"""
