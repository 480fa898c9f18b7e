"""`callboard trust` and `permissions`: files of a directory that agents load, and tool calls that need no question."""

from __future__ import annotations

from pathlib import Path

import click

from .. import options


@click.command("trust", short_help="Load a directory's AGENTS.md, skills, hooks and .mcp.json.")
@click.argument("directory", metavar="[DIR]", default=".", type=click.Path(exists=True, file_okay=False))
@click.option(
    "--show", is_flag=True, help="List the files, the commands that they run, and the changes since; change nothing."
)
@click.option("--revoke", is_flag=True, help="Never load these files, and do not mention them in runs.")
@click.option("--forget", is_flag=True, help="Delete your decision about the directory.")
@options.text_or_json
def trust(directory: str, show: bool, revoke: bool, forget: bool, as_json: bool) -> str:
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


@click.group("permissions", short_help="Explain which rule allows or denies a tool call.")
def permissions() -> None:
    """Explain which rule allows or denies a tool call. The rules are `permissions` of config.yaml and of an agent's
    file, the effect of each tool, and your stored approvals.
    """


@permissions.command("explain", short_help="Explain the decision about a call.")
@click.argument("call")
@click.option("--tool", default="execute_command", show_default=True, help="Name of the called tool.")
@click.option(
    "--agent",
    metavar="NAME",
    shell_complete=options.complete_target,
    help="Include the rules of this agent's file.",
)
@click.option(
    "--allow", "allowed", metavar="TOOL", multiple=True, help="Decide as in a run with --allow TOOL; repeatable."
)
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


@permissions.command("list", short_help="List the approvals stored for this directory.")
@options.text_or_json
def list_all(as_json: bool) -> str:
    """List the approvals stored for this directory, by the answer `always` to a question."""
    from ..actions.tools import list_stored

    return list_stored(as_json=as_json)


@permissions.command("forget", short_help="Remove approvals stored for this directory.")
@click.argument("tool", required=False)
def forget(tool: str | None) -> str:
    """Remove the approvals stored for this directory: those of one tool, or all."""
    from ..actions.tools import forget_stored

    return forget_stored(tool)
