"""`callboard run`: its flags. What they do is in `running`, which is imported only when there is work to do."""

from __future__ import annotations

from typing import Any

import click

from . import options


@click.command("run", short_help="Run an agent and print its result.")
@click.argument("target", shell_complete=options.complete_target)
@click.argument("prompt", required=False)
@options.model
@options.variables
@click.option("--set", "state", metavar="KEY=JSON", multiple=True, help="Overrides a key of initial_state; repeatable.")
@options.prepared_answers
@click.option("--ui", is_flag=True, help="Shows the run on a page too; its address is told on stderr.")
@options.session
@options.knowledge
@options.permissions
@options.no_input
@click.option(
    "--attach",
    metavar="FILE",
    multiple=True,
    help="A file that a workflow's task comes with; repeatable.",
)
@click.option(
    "--save", metavar="DIR", help="Keeps the run as files in DIR/<run id>/: events, outputs, usage, workspace."
)
@options.dry_run
@options.result_form
@options.compat
@options.limits
@options.strict
@options.loudness
@options.config_dir
def command(**given: Any) -> int:
    """Runs TARGET and prints its result on stdout; progress goes to stderr.

    TARGET is the name of an agent in the config directory or of a built-in one, an agent's directory, or a YAML
    file: of an agent, of a graph, or a DevAll workflow. PROMPT is the text it starts from; `-` reads it from standard
    input, and text piped in is appended to it.

    \b
    Exit codes: 0 done, 1 the run failed, 2 wrong usage or invalid file, 3 configuration or credentials,
    4 a limit was reached, 5 a person was needed and nobody was there, 6 upstream failed (a retry may work),
    129/130/143 ended by SIGHUP/Ctrl-C/SIGTERM, 141 the reader of stdout went away.
    """
    options.check_loudness(given)
    from .given import request
    from .running import Manner, run

    return run(request(given), Manner(**given))
