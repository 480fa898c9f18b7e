"""Tools: the functions that a model may call, from every source.

`tool.Tool` is a tool: a spec for the model, and an async function that executes a call. `declare` reads tool files
(.sh, .py, .ts) without running them, `files` runs them as supervised processes, `builtin` contains the built-in tools,
and `functions` wraps plain Python functions. `registry` finds the tools that an agent names, `permissions` decides
which calls may run, and `calls` executes the calls of one model turn. Start with `tool`, then `calls`.
"""
