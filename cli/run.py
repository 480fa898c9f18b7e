"""`callboard run`: its flags. What they do is in `running`, which is imported only when there is work to do."""

from __future__ import annotations

from typing import Any

import click

from .options import above_zero, complete_target, config_dir, strict


@click.command("run", short_help="Run an agent and print its result.")
@click.argument("target", shell_complete=complete_target)
@click.argument("prompt", required=False)
@click.option("-m", "--model", metavar="MODEL", help="Model id (client:model) for nodes that name none.")
@click.option(
    "--var", "variables", metavar="NAME=VALUE", multiple=True, help="Sets a variable of the agent; repeatable."
)
@click.option("--set", "state", metavar="KEY=JSON", multiple=True, help="Overrides a key of initial_state; repeatable.")
@click.option(
    "--answer",
    "answers",
    metavar="TEXT",
    multiple=True,
    help="Answers a question, in the order asked; repeatable.",
)
@click.option(
    "--answers",
    "answers_file",
    metavar="FILE",
    help="YAML: a list of answers used in order, or a mapping of node id to answer or list of answers.",
)
@click.option("--no-input", is_flag=True, help="Never ask at the terminal.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json", "stream-json"]),
    default="text",
    show_default=True,
    help="Form of the result on stdout.",
)
@click.option(
    "--compat",
    type=click.Choice(["standard", "loki", "devall"]),
    help="Whose rules to follow where dialects disagree; wins over the file's settings.compat.",
)
@click.option("--timeout", metavar="S", callback=above_zero("seconds", float), help="Seconds the run may take.")
@click.option("--max-turns", metavar="N", callback=above_zero("model calls", int), help="Model calls the run may make.")
@click.option(
    "--max-tokens", metavar="N", callback=above_zero("tokens", int), help="Tokens the run may use, in and out."
)
@click.option("--max-cost", metavar="USD", callback=above_zero("USD", float), help="Money the run may spend.")
@strict
@click.option("-q", "--quiet", is_flag=True, help="No progress and no warnings on stderr, only errors.")
@click.option("-v", "--verbose", is_flag=True, help="More on stderr: model calls, tools, nested graphs, times.")
@config_dir
def command(**given: Any) -> int:
    """Runs TARGET and prints its result on stdout; progress goes to stderr.

    TARGET is the name of an agent in the config directory, an agent's directory, or a YAML file. PROMPT is the
    text the agent starts from; `-` reads it from standard input, and text piped in is appended to it.

    \b
    Exit codes: 0 done, 1 the run failed, 2 wrong usage or invalid file, 3 configuration or credentials,
    4 a limit was reached, 5 a person was needed and nobody was there, 6 upstream failed (a retry may work),
    129/130/143 ended by SIGHUP/Ctrl-C/SIGTERM, 141 the reader of stdout went away.
    """
    if given["quiet"] and given["verbose"]:
        raise click.UsageError("-q and -v contradict each other.")
    from .running import Request, run

    return run(Request(**given))
