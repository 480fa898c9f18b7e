"""Click declarations of the commands: arguments, flags and help texts.

`main.COMMANDS` maps each command to its module. A module has one command or group, which it calls `command`, or several
that belong together, each called by its name: `run` has `run`, `ask` and `batch`.

These modules are imported for `--help` and completion, which may cost at most five times `python -c pass`
(benchmarks/start.py). So at the top they import only click, `..options`, and modules that import as little. The
implementation is usually in the module of the same name in `..actions`, or in `..control.commands` for clients of a
server and for records of runs. Each command imports it when it is called. Only `..main` imports these modules, by name.

Start with `run`, the command with the most flags, or with `macro`, a command and a group.
"""
