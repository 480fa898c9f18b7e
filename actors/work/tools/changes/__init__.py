"""File changes by the built-in tools, stored so that they can be displayed and undone.

The package is below `tools/` because the tools that write store the changes (`builtin/writing`), and undo writes as
they do: it walks the same directories without following links, takes the same locks, and replaces files the same way.

The entry point is `run_changes`: `changes_of` and `restore`, with the decisions of an undo. `snapshot` records a change
before a tool makes it. `store` contains the earlier contents and one record per run on disk, defines a record's format,
and reads the current state of a path. `diff` makes diffs.
"""
