"""Execution of a Loki command line with the functions of Callboard's own commands.

Flags that only print or change something (`at_once`) come first and alone, as in Loki. Then a macro, a base to build, a
shell command from words (`-e`), a prompt. Without a text the chat starts. Piped standard input is a text, and so is a
file (`-f`), which may be sent alone.
"""

from __future__ import annotations

import sys

import click

from ...protocol.errors import UsageError
from ..stdin import prompt_text
from .immediate_flags import AT_ONCE, by_command
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
        from .code import CodeResult

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
