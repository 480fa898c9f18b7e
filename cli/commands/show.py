"""`callboard show`: requests to models in a run, and the replies."""

from __future__ import annotations

import click

from .. import options


@click.command("show", short_help="Show the requests and replies of models in a run.")
@click.argument("run", shell_complete=options.complete_run)
@click.argument("call", metavar="[NODE|ACTOR|N]", required=False)
@click.option("--request", "part", flag_value="request", help="Show only the request.")
@click.option("--reply", "part", flag_value="reply", help="Show only the reply.")
@click.option("--raw", is_flag=True, help="Print only the body of the request, as it was sent to the provider.")
@click.option("--all", "all_calls", is_flag=True, help="Show all matching requests, not only the last one.")
@options.text_or_json
def command(run: str, call: str | None, part: str | None, raw: bool, all_calls: bool, as_json: bool) -> str:
    """List the stored requests of RUN (its id, the beginning of it, or `last`) to models. With a number, `last`, or the
    name of a node or of an agent (or the path of an actor), show that request as the model received it: system prompt,
    messages, tools and parameters; and the reply. If a node made several requests, show the last one.

    Requests are stored for runs at a terminal, and with `keep_requests: true` in config.yaml. No server is needed.

    \b
    callboard show last                  # the list of requests
    callboard show last last             # the last request, and its reply
    callboard show 7f3a plan --request   # the request of node plan
    """
    from ..control.commands.calls import list_calls, show_calls

    if raw and (part is not None or as_json):
        raise click.UsageError("--raw prints only the body: give no --request, --reply or -o")
    if call is None and part is None and not raw and not all_calls:
        return list_calls(run, as_json=as_json)
    return show_calls(run, call, part="raw" if raw else part, all_calls=all_calls, as_json=as_json)
