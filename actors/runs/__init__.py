"""Runs: from the name of a target to an `Outcome`.

Five names to know:

    load, Loaded   find, read and check a target: graph, LLM agent or workflow (`target`)
    begin          starts a run of a `RunRequest` (`begin`)
    Execution      one run, from its first event to its last (`execution`)
    Prepared       a target that was compiled and is ready to run (`prepared`)
    Root           the state that all runs of a process share (`root`)

`run` and `runtime` are the Python API over them. `durable`, `first_row` and `pinned_files` journal runs, and resume
those whose process was killed; `stored_runs` lists, prunes and exports them without a root. Packages: `sessions`,
`batch`, `rerun`, `setup`. May import every layer of actors/ but `front`. Start with `begin`. Nothing is imported here:
checking a file needs no event loop.
"""
