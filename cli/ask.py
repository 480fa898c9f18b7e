"""`callboard ask`: its flags. It runs as `callboard run` does (`running`), with an agent that has no directory."""

from __future__ import annotations

from typing import Any

import click

from . import options


@click.command("ask", short_help="Ask a model, with tools if you like; needs no agent.")
@click.argument("prompt", required=False)
@options.model
@click.option(
    "--tool",
    "tools",
    metavar="NAME",
    multiple=True,
    help="A tool it may call (callboard tools lists them), an alias of several, or all; mcp:NAME for those of an MCP"
    " server; repeatable [default: enabled_tools and enabled_mcp_servers of config.yaml].",
)
@click.option("--system", metavar="TEXT", default="", help="The system prompt.")
@options.prepared_answers
@options.session
@options.knowledge
@options.permissions
@options.no_input
@options.dry_run
@options.result_form
@options.limits
@options.loudness
@options.config_dir
def command(tools: tuple[str, ...], system: str, **given: Any) -> int:
    """Asks PROMPT of a model that may call tools, and prints its answer on stdout; progress goes to stderr.

    PROMPT `-` reads standard input, and text piped in is appended to PROMPT; with -f it may be left out. Tools that
    write or execute ask at the terminal first, unless --yes, --allow or the permissions of config.yaml say otherwise.
    Exit codes as for `callboard run`.

    \b
    callboard ask "What time is it?" --tool get_current_time
    git diff | callboard ask "Write a commit message for this change"
    callboard ask -f notes.md -f '`git log -5`' "What is missing from the notes?"
    """
    options.check_loudness(given)
    from .given import request
    from .running import AdHoc, Manner, run

    return run(request(given), Manner(adhoc=AdHoc(instructions=system, tools=tools), **given))
