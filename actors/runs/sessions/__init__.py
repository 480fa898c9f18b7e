"""Sessions: conversations that are kept and can be continued.

`store` reads and writes their files (sync, for threads) in the layout of `disk`; `live` has the sessions in use, each
an actor that gives out turns one at a time. Begin with `live`. This room imports agents and models, and nothing of
runs; `runs.in_session` plays one as a turn.
"""
