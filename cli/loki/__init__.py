"""Command line of Loki: `callboard [FLAGS] TEXT` and `callboard loki ...`.

A user of Loki or aichat types one prompt after a few flags; lists, secrets and settings are flags too. `loki.flags`
parses such a line. `loki.play` executes it with the functions behind `ask`, `run`, `macro`, `vault` and other commands.
Only features without a command of their own are implemented here: `execute` (`-e`: a shell command from words, with a
menu; `-c`: only the code of an answer) and `info` (settings and paths, one per line, for scripts).

`routing` recognises such command lines, and is the only module of this package that `callboard COMMAND` imports.
"""
