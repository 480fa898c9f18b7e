"""Command line: commands, their output, and the questions they ask. Rules of the domain belong to `actors`.

`start` begins the process and `main` finds the command. `commands/` has the click declarations; `actions/`, usually
with modules of the same names, implements them. Declarations are imported for `--help` and completion, so they import
little; actions import trio and the engine. `control/` is the client of a server, behind `ps`, `attach`, `runs` and
others. `chat/` is the conversation, `wizard/` implements `setup`, `loki/` parses Loki's command line, `shells/` is
completion, and `render/` writes to the terminal.

Commands share the other modules: `options` and `flag_values` (flags), `frame` (the root of a command), `failure`,
`logging` and `settings_warnings` (stderr), `stdin`, `desktop`, `new_files`, `vault_passphrase`.

The layer may import every other layer; no other layer imports it. Five names to know:

    main.COMMANDS         module of each command
    options               click options that several commands have; `flag_values` converts their values
    actions.run           `callboard run`, from parsed flags to the exit code
    frame.play            the root of a command: signals, progress, questions, exit code
    failure.report        the line on stderr, and the exit code, of every error

Start with `commands/run` and `actions/run`.
"""
