"""`callboard permissions`: explain a decision about a tool call, and list or forget stored answers."""

from __future__ import annotations

import click

from .. import options


@click.group("permissions", short_help="Explain which rule allows or denies a tool call.")
def command() -> None:
    """Explain which rule allows or denies a tool call. The rules are `permissions` of config.yaml and of an agent's
    file, the effect of each tool, and your stored approvals.
    """


@command.command("explain", short_help="Explain the decision about a call.")
@click.argument("call")
@click.option("--tool", default="execute_command", show_default=True, help="Name of the called tool.")
@click.option(
    "--agent",
    metavar="NAME",
    shell_complete=options.complete_target,
    help="Include the rules of this agent's file.",
)
@click.option("--allow", "allowed", metavar="TOOL", multiple=True, help="Include this flag of a run; repeatable.")
@options.output_and_config
def explain(
    call: str, tool: str, agent: str | None, allowed: tuple[str, ...], as_json: bool, config_dir: str | None
) -> str:
    """Print the decision about a call, its source, and the pattern that matches. Nothing is run.

    CALL is the text that patterns of the tool are compared with: a command, a path, an address; or all arguments as
    JSON.

    \b
      callboard permissions explain 'git push && rm -rf build'
      callboard permissions explain --tool fs_write src/main.py
    """
    from ..actions.tools import explain_call

    return explain_call(call, tool, agent, allowed, config_dir, as_json=as_json)


@command.command("list", short_help="List the approvals stored for this directory.")
@options.text_or_json
def list_all(as_json: bool) -> str:
    """List the approvals stored for this directory, by the answer `always` to a question."""
    from ..actions.tools import list_stored

    return list_stored(as_json=as_json)


@command.command("forget", short_help="Remove approvals stored for this directory.")
@click.argument("tool", required=False)
def forget(tool: str | None) -> str:
    """Remove the approvals stored for this directory: those of one tool, or all."""
    from ..actions.tools import forget_stored

    return forget_stored(tool)
