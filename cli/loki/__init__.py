"""Loki's command line: `callboard [FLAGS] TEXT` and `callboard loki ...`.

A user of Loki or aichat types one prompt behind a few flags, and lists, secrets and settings are flags, too. This room
reads such a line (`flags`) and has it done (`play`): by the functions behind `ask`, `run`, `macro`, `vault` and the
others, of which it has none of its own. What those commands lack stands here: `execute` (`-e`: a command from words,
with a menu), `code` (`-c`: the code of an answer alone), `info` and `lists` (one thing per line, for scripts).

`routing` says which command lines are meant, and is all of this room that `callboard COMMAND` imports.
"""
