"""Sessions: stored conversations that can be continued.

`store` reads and writes their files (sync, for threads) in the layout of `disk`. `live` has the sessions in use, each
an actor that grants turns one at a time; begin with `live`. This package imports agents and models, but not runs;
`runs.session_run` executes a run as a turn.
"""
