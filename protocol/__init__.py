"""Data of Callboard: messages, events, and the format of every file that a user writes.

This layer has msgspec structs, and pure code that reads and checks them. It does no I/O, does not import trio, and
does not know its senders and receivers. It imports msgspec and PyYAML, and nothing of the other layers. `kernel`
imports nothing of the rest of this layer.

Five names to know:

    RunRequest      all options of a run (`requests`)
    Outcome         the result of a run (`outcome`)
    Event           one report of a run; `events` has the kinds of data
    Problem         a finding about a file, with its position and a remedy (`problems`)
    CallboardError  base class of all errors (`kernel.errors`); `errors` lists every error by name

Start with `events` (reports of a run) and `graph` (contents of a `graph.yaml`). A file's format is in one module with
its reader: `graph`, `agent`, `role`, `macro`, `skill`, `cases`, `session`, `knowledge`, `mcp.config`; `settings` and
`workflow` are packages. `tree`, `yaml_tree` and `reading` are what the readers share.
"""
