"""Everything that reaches a terminal.

`text` makes foreign text harmless and decides about colours, `narration` puts events into words, `plain`
and `tree` are the two ways of showing progress on stderr, `prompt` asks a person, `result` owns stdout.
"""
