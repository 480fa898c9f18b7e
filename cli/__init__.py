"""Command line: commands, their output, and the questions they ask. Rules of the domain belong to `actors`.

`start` begins the process and `main` finds the command. `commands/` has the click declarations, one module per command
group; `actions/`, with modules of the same names, implements them. Declarations are imported for `--help` and
completion, so they import little; actions import trio and the engine. `control/` is the client of a server, behind
`ps`, `attach`, `runs` and others. `chat/` is the conversation, `wizard/` implements `setup`, `loki/` parses Loki's
command line, `shells/` is completion, and `render/` writes to the terminal.

Commands share the other modules: `options` and `flag_values` (flags), `frame` (the root of a command), `failure`,
`logging` and `settings_warnings` (stderr), `stdin`, `editor`, `browser`, `clipboard`, `vault_passphrase`.

Start with `commands/run` and `actions/run`: `callboard run` from its flags to the exit code.
"""
