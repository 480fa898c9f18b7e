"""`callboard show`: requests to models in a run, and the replies."""

from __future__ import annotations

import click

from .. import options


@click.command("show", short_help="Show what a model saw and said in a run.")
@click.argument("run", shell_complete=options.complete_run)
@click.argument("call", metavar="[NODE|ACTOR|N]", required=False)
@click.option("--request", "part", flag_value="request", help="Only what the model saw.")
@click.option("--reply", "part", flag_value="reply", help="Only what it said.")
@click.option("--raw", is_flag=True, help="Only the body of the request, as it was sent to the provider.")
@click.option("--all", "all_calls", is_flag=True, help="Every call that is meant, not just the last of them.")
@options.text_or_json
def command(run: str, call: str | None, part: str | None, raw: bool, all_calls: bool, as_json: bool) -> str:
    """Lists the requests to models that are kept of RUN (its id, the beginning of it, or `last`). With a number,
    `last`, or the name of a node or of an agent (or an actor's path), shows that request as the model got it: system
    prompt, messages, tools and parameters; and the reply. Of several of a node the last one is shown.

    They are kept for runs at a terminal, and where `keep_requests: true` stands in config.yaml. Needs no server.

    \b
    callboard show last                  # which requests there were
    callboard show last last             # the last one, and what came back
    callboard show 7f3a plan --request   # what node plan was asked
    """
    from ..control.commands.calls import list_calls, show_calls

    if raw and (part is not None or as_json):
        raise click.UsageError("--raw is the body alone: leave --request, --reply and -o out")
    if call is None and part is None and not raw and not all_calls:
        return list_calls(run, as_json=as_json)
    return show_calls(run, call, part="raw" if raw else part, all_calls=all_calls, as_json=as_json)
