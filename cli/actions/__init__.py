"""Implementations of the commands: usually one module per module of `..commands`, with the same name.

A function here receives the flags as click parsed them, and returns an exit code or the text for stdout. Rules of the
domain belong to `actors`: these modules combine flags, ask at the terminal, and print. They may import trio, the
engine, and all of `cli` except `..commands` and `..options`. Declarations import them inside functions, when a command
is called.

A part that needs much more code than the rest of its group, or much less, is a module of its own: `macro` runs what
`macros` lists, `tool_calls` executes what `tools` and `mcp` list, `mcp_status` starts no server, and `vault` does
without the OAuth of `auth`. `missing_inputs` is shared by all commands that execute agents. tests/packaging lists the
modules whose names differ from their declarations.

    run.execute_run            one run, from its request to the exit code
    durable.resume_runs        resume interrupted runs; the module also has fork, replay, export and import
    tools.Toolbox              tools of a configuration directory and of agents, with their permissions
    missing_inputs.asked_for   questions for missing variables and prompts

Start with `run`. `..frame` provides the root of a run.
"""
