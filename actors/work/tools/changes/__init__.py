"""File changes by the built-in tools, stored so that they can be displayed and undone.

The package is below `tools/` because the tools that write store the changes (`builtin/writing`), and undo writes as
they do: it walks the same directories without following links, takes the same locks, and replaces files the same way.

The entry point is `of_runs`: `changes_of` and `restore`. `keeping` records a change before a tool makes it. `store`
contains the earlier contents and one record per run on disk; `record` defines a record's format. `plan` decides the
result of an undo, `present` reads the current state, and `taking_back` executes the undo. `unified` makes diffs.
"""
