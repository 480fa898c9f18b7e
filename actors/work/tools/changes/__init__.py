"""What our tools have changed in files, kept so that it can be shown and taken back.

It stands below `tools/` because the tools that write keep it (`builtin/writing`), and what takes it back writes as they
do: the same directories walked without following links, the same locks, the same way to replace a file.

`of_runs` is the way in: `changes_of` and `restore`. `keeping` is what a tool tells before it changes a file; `store`
has the contents of before and a record per run on disk, `record` says what is in one; `plan` decides what is taken
back, `present` looks at what is there, and `taking_back` does it; `unified` makes diffs.
"""
