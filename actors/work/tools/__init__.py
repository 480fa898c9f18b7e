"""Tools: the functions that a model may call, from every source.

`tool.Tool` is a tool: a spec for the model, and an async function that executes a call. `declare` reads tool files
(.sh, .py, .ts) without running them, `files` runs them as supervised processes, `builtin` contains the built-in tools,
`changes` records the files that these change, and `functions` wraps plain Python functions. `registry.ToolSources` is
the part of a run that the package needs; it imports no run context. Names to know: `Tool`, `registry.ToolRegistry`,
`checking.Checks`, `permissions.Permissions` (which calls may run), `calls.CallPlayer` (the calls of one model turn).
Start with `tool`, then `calls`.
"""
