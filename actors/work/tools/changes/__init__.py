"""File changes by the built-in tools, stored so that they can be displayed and undone.

The package is below `tools/` because the tools that write store the changes (`builtin/writing`), and undo writes as
they do: it walks the same directories without following links, takes the same locks, and replaces files the same way.

The entry point is `run_changes`: `changes_of` and `restore`. `snapshot` records a change before a tool makes it.
`store` contains the earlier contents and one record per run on disk; `record` defines a record's format. `undo` decides
the result of an undo and executes it, and `file_state` reads the current state. `diff` makes diffs.
"""
