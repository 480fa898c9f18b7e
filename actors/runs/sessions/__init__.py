"""Sessions: conversations that are kept, and go on another day.

`store` is the door to their files (sync, for threads), which lie as `disk` says; `live` has the sessions that somebody
works with, each an actor that gives out turns one at a time; `play` runs an agent in one. Begin with `live`. Knows
`runs` (a turn of a session is a run) and `models`; `runs` knows nothing of it but `Root.sessions`.
"""
