"""Error reports of a failed command: text on stderr, and one JSON object on stdout if the flags ask for JSON.

`-o json` promises an object whatever happens, so this module examines the raw arguments: a command line that click
could not parse still requests an output format.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import sys
from collections.abc import Sequence

import click

from ..protocol.errors import CallboardError, InvalidFile, UsageError
from .render.text import safe, with_node

_OUTPUT = re.compile(r"-[qv]*o(.*)", re.DOTALL)


def report(error: BaseException, arguments: Sequence[str]) -> int:
    """Report `error` in the form that the command line requests; return the exit code."""
    error = single(error)
    if isinstance(error, FileNotFoundError) and not _has_directory():
        error = UsageError("the working directory no longer exists; change to another one, and run the command again")
    if isinstance(error, click.ClickException):
        _show_usage(error)
        code, exit_code, node = "usage", error.exit_code, None
        message = error.format_message()
    elif isinstance(error, CallboardError):
        _hide_secrets(error)
        code, exit_code, node = error.code, error.exit_code, error.node
        message = str(error)
        _show(error)
    else:
        _hide_secrets(error)
        code, exit_code, node = "internal", 1, None
        message = f"{type(error).__name__}: {error}"
        _show_unexpected(error, message)
    wanted = wanted_output(arguments)
    if wanted in ("json", "stream-json"):
        as_event = wanted == "stream-json"
        _print_json(_command(arguments), code, message, node, exit_code, as_event=as_event)
    return exit_code


def _has_directory() -> bool:
    try:
        os.getcwd()  # noqa: PTH109 - a path is not needed
    except OSError:
        return False
    return True


def _hide_secrets(error: BaseException) -> None:
    from ..actors.io.secret_redaction import hide_in  # heavier than a wrong command line needs

    hide_in(error)


def single(error: BaseException) -> BaseException:
    """Return the only error in nested one-element exception groups: nurseries wrap even a lone error."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def wanted_output(arguments: Sequence[str]) -> str:
    """Return the value of the last `-o` / `--output` without the parser; `""` if there is none."""
    wanted = ""
    waiting = False
    for argument in arguments:
        if argument == "--":
            break
        if waiting:
            wanted, waiting = argument, False
        elif argument == "--output":
            waiting = True
        elif argument.startswith("--output="):
            wanted = argument.removeprefix("--output=")
        elif match := _OUTPUT.fullmatch(argument):
            wanted = match[1]
            waiting = not wanted
    return wanted


def _command(arguments: Sequence[str]) -> str:
    return next((argument for argument in arguments if not argument.startswith("-")), "")


def _show_usage(error: click.ClickException) -> None:
    shown = io.StringIO()
    error.show(shown)
    text = shown.getvalue().replace(f"Error: {error.format_message()}", f"callboard: {error.format_message()}")
    sys.stderr.write(_fitting(text))


def _show(error: CallboardError) -> None:
    message = with_node(str(error), error.node)
    if isinstance(error, InvalidFile) and error.problems:
        message = message.partition("\n")[0].rstrip(":")  # the rest lists the problems again
        for problem in error.problems:
            sys.stderr.write(_fitting(safe(str(problem))) + "\n")
    complain(message)


def complain(message: str) -> None:
    """Write an error line to stderr, wrapped between words to the width of a terminal."""
    sys.stderr.write(_fitting(f"callboard: {safe(message)}") + "\n")


def _fitting(text: str) -> str:
    """Wrap a message at blanks for a terminal, which would wrap inside words; otherwise return it unchanged."""
    if not sys.stderr.isatty():
        return text
    columns = shutil.get_terminal_size().columns
    if max(map(len, text.split("\n"))) * 2 <= columns:  # fits, however wide its characters are
        return text
    from .render.wrap import wrapped

    return "\n".join(row for line in text.split("\n") for row in wrapped(line, columns, deeper=4))


def _show_unexpected(error: BaseException, message: str) -> None:
    level = os.environ.get("CALLBOARD_LOG", "").lower()
    if "debug" in level or "trace" in level:
        import traceback

        from ..actors.io.secret_redaction import hidden

        sys.stderr.write(hidden("".join(traceback.format_exception(error))))
    sys.stderr.write(
        f"callboard: unexpected error: {safe(message)}\n    run it again with CALLBOARD_LOG=debug for the traceback\n"
    )


def _print_json(command: str, code: str, message: str, node: str | None, exit_code: int, *, as_event: bool) -> None:
    if command in ("run", "ask"):
        line = _failed_run(code, message, node, exit_code, as_event=as_event)
    else:
        line = json.dumps({"schema_version": 1, "error": {"code": code, "message": message, "node": node}})
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _failed_run(code: str, message: str, node: str | None, exit_code: int, *, as_event: bool) -> str:
    from ..protocol.events import to_wire
    from ..protocol.outcome import ErrorReport, Outcome
    from .render.result import terminal_event

    error = ErrorReport(code=code, message=message, node=node)
    outcome = Outcome(run_id="", status="failed", error=error, exit_code=exit_code)
    return json.dumps(to_wire(terminal_event(outcome, seq=1)) if as_event else outcome.to_wire())
