"""`callboard trust`: load a directory's AGENTS.md, skills, hooks and .mcp.json, or refuse them."""

from __future__ import annotations

from pathlib import Path

import click

from .. import options


@click.command("trust", short_help="Load a directory's AGENTS.md, skills, hooks and .mcp.json.")
@click.argument("directory", metavar="[DIR]", default=".", type=click.Path(exists=True, file_okay=False))
@click.option(
    "--show", is_flag=True, help="Shows what is there, what it can run, and what has changed; changes nothing."
)
@click.option("--revoke", is_flag=True, help="Nothing of it counts any more, and no run mentions it.")
@click.option("--forget", is_flag=True, help="As if the directory were new to you.")
@options.text_or_json
def command(directory: str, show: bool, revoke: bool, forget: bool, as_json: bool) -> str:
    """Trusts what lies in a directory for agents, as it is now: AGENTS.md, skills, hooks, `.mcp.json`.

    It counts for the whole repository that DIR lies in. A file that changes later counts no more until you say this
    again; `--show` has the difference.

    \b
      callboard trust --show
      callboard trust
    """
    if show + revoke + forget > 1:
        raise click.UsageError("--show, --revoke and --forget exclude each other.")
    from ..actions.trust import forget_trust, revoke_trust, show_trust, trust_directory

    act = show_trust if show else revoke_trust if revoke else forget_trust if forget else trust_directory
    return act(Path(directory), as_json=as_json)
