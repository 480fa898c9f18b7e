"""Execution of a Loki command line with the functions of Callboard's own commands.

Flags that only print or change something (`AT_ONCE`: lists, facts, secrets, sign-ins, updates) come first and alone, as
in Loki. Then a macro, a base to build, a shell command from words (`-e`), a prompt. Without a text the chat starts.
Piped standard input is a text, and so is a file (`-f`), which may be sent alone.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable

import click

from ...protocol.errors import NobodyToAsk, UsageError
from ..stdin import prompt_text
from .loki_args import Ended, Given


def play(given: Given, *, nothing_said: bool) -> Ended:
    """Execute the flags.

    Args:
        nothing_said: the line is only `callboard`, which prints the help if there can be no chat.

    Raises:
        click.UsageError: flags contradict each other, or there is neither a text nor a terminal.
        CallboardError: raised by the command behind a flag.
    """
    _check(given)
    if given.dry_run and (given.empty_session or given.rebuild_rag):
        what = "the session" if given.empty_session else "the knowledge base"
        sys.stderr.write(f"callboard: with --dry-run, {what} does not change\n")
    for name, act in AT_ONCE.items():
        if getattr(given, name) not in (None, False):
            return act(given)
    if given.macro is not None:
        return _macro(given, given.macro)
    text = prompt_text(" ".join(given.text))
    if (given.continues or given.resume) and text.strip():
        flag = "--continue" if given.continues else "--resume"
        raise click.UsageError(f"{flag} starts a chat at the terminal: give no TEXT.")
    if not text.strip() and not given.files:
        if given.rebuild_rag:
            assert given.rag is not None
            if given.dry_run:
                return 0
            return by_command("kb", "rebuild", *given.in_directory, "--", given.rag)
        return _without_text(given, nothing_said=nothing_said)
    if given.empty_session and not given.dry_run:
        _empty(given)
    if given.execute:
        from .execute import execute

        return execute(text, given)
    return _ask(text, given)


def _check(given: Given) -> None:
    answering = {
        "--agent": given.agent is not None,
        "--role": given.role is not None,
        "--prompt": given.prompt is not None,
        "--execute": given.execute,
        "--code": given.code,
    }
    named = [flag for flag, is_given in answering.items() if is_given]
    reopens = [flag for flag, is_given in (("--continue", given.continues), ("--resume", given.resume)) if is_given]
    if reopens and (len(reopens) > 1 or named or given.session is not None or given.no_tools):
        raise click.UsageError(
            f"{' and '.join(reopens)}: the chat is restored with its own settings; give no other flag."
        )
    if len(named) > 1:
        raise click.UsageError(f"{' and '.join(named)} exclude each other: each sets the agent or the role.")
    if given.empty_session and given.session is None:
        raise click.UsageError("--empty-session needs the session: -s NAME.")
    if given.variables and given.agent is None:
        raise click.UsageError("--agent-variable needs the agent: -a AGENT.")
    if given.rebuild_rag and given.rag is None:
        raise click.UsageError("--rebuild-rag needs the knowledge base: --rag NAME.")


def _ask(text: str, given: Given) -> int:
    from ..actions.missing_inputs import asked_for
    from ..actions.run import execute_run
    from ..frame import person_at_terminal

    if given.code and not given.dry_run:
        from .execute import CodeResult

        return execute_run(given.request(text), given.run_flags(role="code"), CodeResult(sys.stdout))
    request = given.request(text)
    if given.agent and person_at_terminal(no_input=False):
        request = asked_for(request, given.config_dir, given.session)
    return execute_run(request, given.run_flags(role="code" if given.code else None))


def _empty(given: Given) -> None:
    from ...protocol.errors import NotFound
    from ..actions.sessions import empty_session

    assert given.session is not None
    try:
        empty_session(given.session, given.agent, given.config_dir)
    except NotFound:
        return  # the session starts empty


def _macro(given: Given, name: str) -> Ended:
    idle = {
        "--role": given.role,
        "--prompt": given.prompt,
        "--session": given.session,
        "--agent": given.agent,
        "--rag": given.rag,
        "--file": given.files,
        "--execute": given.execute,
        "--code": given.code,
    }
    if said := [flag for flag, value in idle.items() if value]:
        sys.stderr.write(
            f"callboard: {', '.join(said)}: no effect on a macro, which starts without a session, role and agent\n"
        )
    flags = [*(["--model", given.model] if given.model else []), *(["--dry-run"] if given.dry_run else [])]
    return by_command("macro", *given.in_directory, *flags, "--", name, *given.text)


# --- the chat ----------------------------------------------------------------------------------------------


def _without_text(given: Given, *, nothing_said: bool) -> int:
    """Start the chat, if there is a terminal for it."""
    if given.execute or given.code:
        raise click.UsageError(f"{'--execute' if given.execute else '--code'} needs a TEXT.")
    if _at_terminal():
        from ..chat.program import open_chat

        return open_chat(given.opening(), config_dir=given.config_dir, streams=not given.no_stream)
    if nothing_said:
        sys.stderr.write(f"{click.get_current_context().find_root().get_help()}\n\n")
    raise UsageError('No TTY for REPL: give a prompt (callboard "..."), or pipe a text in')


def _at_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


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
    """Return the function of `--list-KIND`: names for scripts, one per line."""

    def listed(given: Given) -> str:
        from ..render.text import safe

        return "".join(f"{safe(name)}\n" for name in _names_of(kind, given))

    return listed


def _names_of(kind: str, given: Given) -> Iterable[str]:
    from ...actors.io.directories import config_dir

    home, _ = config_dir(given.config_dir, os.environ)
    match kind:
        case "models":
            from ...actors.io.settings import load_settings
            from ...actors.work.models.model_listing import model_names

            return sorted(model_names(load_settings(home)[0], os.environ))
        case "sessions":  # of the agent, or the ones without an agent
            from ...actors.runs.sessions.store import SessionStore

            return [meta.alias or meta.id for meta in SessionStore(home).list(given.agent)]
        case "agents":
            from ...actors.runs.finding import built_in_agents, own_agents

            return sorted({*own_agents(home), *built_in_agents()})
        case "rags":
            from ..options import base_names

            return sorted(base_names(home))
    from ...actors.work import macros, roles

    return [place.name for place in {"macros": macros, "roles": roles}[kind].FILES.places(home)]


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
    """Return `["--yes"]` if `said` is empty and there is no terminal for questions: Loki's scripts do not ask."""
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
