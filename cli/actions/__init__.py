"""Implementations of the commands: one module per command group, with the name of its declarations in `..commands`.

A function here receives the flags as click parsed them, and returns an exit code or the text for stdout. These modules
may import trio, the engine, and all of `cli` except `..commands` and `..options`; declarations import them only inside
functions. Rules of the domain belong to `actors`: these modules parse flags, ask at the terminal, and print.

A group has a second module if some of its commands need much less code than others: `macros` and `macro`, `mcp_status`,
`mcp_server` and `mcp`, `kb_targets` and `kb`, `tool_calls` and `tools`. `durable_run` and `missing_inputs` are shared.
tests/packaging lists every module that is not named after a group.

Start with `run`, from parsed flags to exit code. `..frame` provides the root of a run.
"""
