"""Sessions: conversations that are kept, and go on another day.

`store` is the door to their files (sync, for threads), which lie as `disk` says; `live` has the sessions that somebody
works with, each an actor that gives out turns one at a time. Begin with `live`. Of the house this room knows what an
agent and a model are, and nothing of runs; `runs.in_session` plays one as a turn.
"""
