"""`callboard trust`: load a directory's AGENTS.md, skills, hooks and .mcp.json, or refuse them."""

from __future__ import annotations

from pathlib import Path

import click

from .. import options


@click.command("trust", short_help="Load a directory's AGENTS.md, skills, hooks and .mcp.json.")
@click.argument("directory", metavar="[DIR]", default=".", type=click.Path(exists=True, file_okay=False))
@click.option(
    "--show", is_flag=True, help="List the files, the commands that they run, and the changes since; change nothing."
)
@click.option("--revoke", is_flag=True, help="Load none of these files, and let no run mention them.")
@click.option("--forget", is_flag=True, help="Delete your decision about the directory.")
@options.text_or_json
def command(directory: str, show: bool, revoke: bool, forget: bool, as_json: bool) -> str:
    """Trust the AGENTS.md, skills, hooks and `.mcp.json` of a directory in their present state. Until then, Callboard
    does not load them.

    The decision applies to the whole repository that contains DIR. A file that changes later is not loaded until you
    repeat the command; `--show` prints the difference.

    \b
      callboard trust --show
      callboard trust
    """
    if show + revoke + forget > 1:
        raise click.UsageError("--show, --revoke and --forget exclude each other.")
    from ..actions.trust import forget_trust, revoke_trust, show_trust, trust_directory

    act = show_trust if show else revoke_trust if revoke else forget_trust if forget else trust_directory
    return act(Path(directory), as_json=as_json)
