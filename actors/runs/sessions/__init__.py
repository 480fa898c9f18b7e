"""Sessions: stored conversations that can be continued.

    SessionStore   reads and writes the files; sync, for threads; checks the permissions of callers (`store`)
    Sessions       sessions in use, each an actor that grants turns one at a time (`session_locks`)
    StoredTurn     one turn, from the stored messages to those that it adds (`turn`)
    SessionScope   the directory of an agent's sessions (`names`, with the rules for ids and aliases)

`files` writes and locks files, `summary` shortens long sessions, `export` writes one for people, `roles` changes its
role. Imports agents and models, but not runs; `runs.session_run` executes a run as a turn. Start with `session_locks`.
"""
