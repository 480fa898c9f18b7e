"""`callboard sessions`: list, show, export, rename and delete stored conversations."""

from __future__ import annotations

from typing import Any

import click

from .. import options

_session = click.argument("session")
_agent = click.option(
    "-a", "--agent", metavar="NAME", shell_complete=options.complete_agent, help="Use the session of this agent."
)


@click.group("sessions", cls=options.ListByDefault, short_help="List, read and change stored conversations.")
def command() -> None:
    """List, read and change the conversations that `callboard run -s` and `callboard ask -s` store. Without a command:
    list.

    \b
    SESSION is one of
      bridges                                 its name; of an agent's session with -a AGENT
      0b6f2d4c-8e11-4c0c-9d7e-7d2b5e0e9a35    its id, with or without an agent
    """


@command.command("list", short_help="List the sessions.")
@_agent
@options.output_and_config
def list_all(agent: str | None, as_json: bool, config_dir: str | None) -> str:
    """List the sessions of all agents, or of one, the newest first."""
    from ..actions.sessions import list_sessions

    return list_sessions(agent, as_json=as_json, config_dir=config_dir)


@command.command("show", short_help="Print a conversation.")
@_session
@_agent
@options.output_and_config
def show(session: str, agent: str | None, as_json: bool, config_dir: str | None) -> str:
    """Print the conversation of SESSION."""
    from ..actions.sessions import show_session

    return show_session(session, agent, "json" if as_json else "markdown", config_dir)


@command.command("export", short_help="Write a conversation to a file.")
@_session
@click.argument("file", required=False)
@click.option(
    "-f",
    "--format",
    "form",
    type=click.Choice(["markdown", "json"]),
    help="Form of the file [default: by the suffix of FILE, else markdown].",
)
@_agent
@options.config_dir
def export(session: str, file: str | None, form: str | None, agent: str | None, config_dir: str | None) -> int:
    """Write the conversation of SESSION to FILE, or to stdout."""
    from ..actions.sessions import export_session

    export_session(session, file, form, agent, config_dir)
    return 0


@command.command("path", short_help="Print the path of a session's file.")
@_session
@_agent
@options.config_dir
def path(session: str, agent: str | None, config_dir: str | None) -> str:
    """Print the path of SESSION's file."""
    from ..actions.sessions import path_of

    return f"{path_of(session, agent, config_dir)}\n"


@command.command("rename", short_help="Rename a session.")
@_session
@click.argument("name")
@_agent
@options.config_dir
def rename(**given: Any) -> int:
    """Rename SESSION to NAME. Its id does not change."""
    from ..actions.sessions import rename_session

    rename_session(**given)
    return 0


@command.command("delete", short_help="Delete sessions permanently.")
@click.argument("sessions", metavar="SESSION...", nargs=-1, required=True)
@_agent
@options.config_dir
def delete(sessions: tuple[str, ...], agent: str | None, config_dir: str | None) -> int:
    """Delete SESSIONs permanently, including the files that Loki stored for them."""
    from ..actions.sessions import delete_sessions

    delete_sessions(sessions, agent, config_dir)
    return 0


@command.command("empty", short_help="Delete the conversation, and keep the session.")
@_session
@_agent
@options.config_dir
def empty(**given: Any) -> int:
    """Delete the conversation of SESSION; its name, model and variables stay."""
    from ..actions.sessions import empty_session

    empty_session(**given)
    return 0


@command.command("compress", short_help="Continue a session from a summary.")
@_session
@_agent
@options.config_dir
def compress(**given: Any) -> int:
    """Let a model summarise SESSION. Its next turn continues from the summary; the file still contains the full
    conversation.
    """
    from ..actions.sessions import compress_session

    compress_session(**given)
    return 0
