"""`callboard permissions`: explain a decision about a tool call, and list or forget stored answers."""

from __future__ import annotations

import click

from .. import options


@click.group("permissions", short_help="Show who decides about a call, and why.")
def command() -> None:
    """What tools may do without asking: `permissions` of config.yaml, of an agent's file, and what each tool does."""


@command.command("explain", short_help="Say what becomes of a call, and why.")
@click.argument("call")
@click.option("--tool", default="execute_command", show_default=True, help="The tool that is called.")
@click.option(
    "--agent",
    metavar="NAME",
    shell_complete=options.complete_target,
    help="The agent that calls, whose file may be stricter.",
)
@click.option("--allow", "allowed", metavar="TOOL", multiple=True, help="As of a run that is given this; repeatable.")
@options.output_and_config
def explain(
    call: str, tool: str, agent: str | None, allowed: tuple[str, ...], as_json: bool, config_dir: str | None
) -> str:
    """Says what becomes of a call, who decides, and by which pattern. Nothing is run.

    CALL is what the tool's patterns are matched with: a command, a path, an address; or all of its arguments as JSON.

    \b
      callboard permissions explain 'git push && rm -rf build'
      callboard permissions explain --tool fs_write src/main.py
    """
    from ..actions.permissions import explain_call

    return explain_call(call, tool, agent, allowed, config_dir, as_json=as_json)


@command.command("list", short_help="List what you have allowed for good here.")
@options.text_or_json
def list_all(as_json: bool) -> str:
    """Lists what you have allowed for good in this directory, by answering `always`."""
    from ..actions.permissions import list_stored

    return list_stored(as_json=as_json)


@command.command("forget", short_help="Take back what you have allowed for good here.")
@click.argument("tool", required=False)
def forget(tool: str | None) -> str:
    """Takes back what you have allowed for good in this directory: of one tool, or all of it."""
    from ..actions.permissions import forget_stored

    return forget_stored(tool)
