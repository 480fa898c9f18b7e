"""Tools: what a model may call, wherever it comes from.

A tool is a `tool.Tool`: a spec for the model, and an async function that does it. `declare` reads tool files
(.sh, .py, .ts) without running them, `files` runs them as supervised processes, `builtin` holds our own, `functions`
takes plain Python functions. `registry` finds the tools that an agent names, `permissions` says which calls may go
ahead, `calls` plays the calls of one model turn. Start with `tool`, then `calls`.
"""
