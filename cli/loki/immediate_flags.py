"""Loki's flags that need no prompt: lists, facts, secrets, sign-ins, updates, implemented by commands of Callboard."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import click

from ...protocol.errors import NobodyToAsk, UsageError
from .loki_args import Ended, Given


def by_command(*words: str) -> Ended:
    """Invoke another command with these words as its command line; return its result."""
    top = click.get_current_context().find_root()
    assert isinstance(top.command, click.Group)
    name, *rest = words
    command = top.command.get_command(top, name)
    if command is None:
        raise UsageError(f"this needs `callboard {name}`, which this version does not have")
    with command.make_context(name, rest, parent=top) as context:
        ended: Ended = command.invoke(context)
    return ended


def _secret(verb: str, flag: str) -> Callable[[Given], Ended]:
    return lambda given: by_command("vault", verb, *given.in_directory, "--", getattr(given, flag))


def _names(kind: str) -> Callable[[Given], str]:
    def listed(given: Given) -> str:
        from ..render.text import safe
        from .lists import names_of

        return "".join(f"{safe(name)}\n" for name in names_of(kind, given.config_dir, given.agent))

    return listed


def _info(given: Given) -> Ended:
    """Describe the named agent, session, role or base (the first of these, as in Loki), or else the program."""
    named = {"agents": given.agent, "sessions": given.session, "roles": given.role}
    for command, name in named.items():
        if name is not None and name != "temp":
            return by_command(command, "show", *given.in_directory, "--", name)
    if given.rag is not None:
        return by_command("kb", "status", *given.in_directory, "--", given.rag)
    from .info import as_text

    return as_text(given.config_dir)


def _authenticate(given: Given) -> Ended:
    return by_command("auth", "login", *given.in_directory, *(["--", given.authenticate] if given.authenticate else []))


def _tail_logs(given: Given) -> Ended:
    from ..control.commands.stored_runs import runs_dir, stored_runs

    if given.disable_log_colors:
        os.environ["NO_COLOR"] = "1"
    newest = next(iter(stored_runs()), None)
    if newest is None:
        hint = "with CALLBOARD_LOG=debug a command logs on stderr"
        raise UsageError(f"no run has left a log in {runs_dir()} yet; {hint}")
    sys.stderr.write(f"callboard: the newest run: {newest.run}\n")
    return by_command("logs", "--verbose", *([] if newest.over else ["--follow"]), "--", newest.run)


def _install(given: Given) -> Ended:
    force = ["--force", "--yes"] if given.install_force else []
    if given.install_from is not None:
        only = [word for kind in given.filters for word in ("--filter", kind)]
        try:
            return by_command("install", *given.in_directory, *only, *force, "--", given.install_from)
        except NobodyToAsk as error:
            hint = "--install-force installs it without asking, and replaces existing files"
            raise NobodyToAsk(
                f"installing the files above needs a confirmation, and no user is present; {hint}"
            ) from error
    assert given.install is not None
    from ...actors.work.bundles.layout import is_kind

    kind = given.install
    if is_kind(kind) == "mcp":
        return "Callboard includes no MCP servers: write your own mcp.json (callboard mcp --help)\n"
    return by_command("install", *given.in_directory, "--builtin", "--filter", kind, *force, *_unasked(force))


def _unasked(said: list[str]) -> list[str]:
    """Return `--yes` if there is no terminal for questions: Loki's scripts do not ask either."""
    from ..frame import person_at_terminal  # imports trio, which the first prompt of a chat does not need

    return [] if said or person_at_terminal(no_input=False) else ["--yes"]


def _delete_secret(given: Given) -> Ended:
    assert given.delete_secret is not None
    return by_command("vault", "delete", *given.in_directory, *_unasked([]), "--", given.delete_secret)


def _build_tools(_given: Given) -> str:
    return "nothing to build: tools are read from their files when an agent runs\n"


def _update(given: Given) -> str:
    from ...actors.io.updating import how_to_update

    return how_to_update((given.update or "").removeprefix("v"))


def _completions(given: Given) -> Ended:
    assert given.completions is not None
    return by_command("completion", given.completions)


AT_ONCE: dict[str, Callable[[Given], Ended]] = {
    "completions": _completions,
    "update": _update,
    "build_tools": _build_tools,
    "tail_logs": _tail_logs,
    "sync_models": lambda given: by_command("models", "update", *given.in_directory),
    "install": _install,
    "install_from": _install,
    "authenticate": _authenticate,
    "add_secret": _secret("add", "add_secret"),
    "get_secret": _secret("get", "get_secret"),
    "update_secret": _secret("update", "update_secret"),
    "delete_secret": _delete_secret,
    "list_secrets": lambda given: by_command("vault", "list", *given.in_directory),
    "list_models": _names("models"),
    "list_roles": _names("roles"),
    "list_sessions": _names("sessions"),
    "list_agents": _names("agents"),
    "list_rags": _names("rags"),
    "list_macros": _names("macros"),
    "info": _info,
}
"""Function of each flag. If a line has several, the first in this order applies."""
