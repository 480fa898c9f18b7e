"""Click declarations of the commands: one module per command group, named after it.

`main.COMMANDS` maps each command to its module. A module with one command calls it `command`; those with several call
each by its name.

These modules are imported for `--help` and completion, which may cost at most five times `python -c pass`
(benchmarks/start.py). So at the top they import only click, `..options`, and modules that import as little. The
implementation is in the module of the same name in `..actions`, or in `..control.commands` for clients of a server.
Each command imports it when it is called. Only `..main` imports these modules, by name.

Start with `run`, the command with the most flags, or with `trust`, a small one.
"""
