"""The vault as the command line opens it: the passphrase is asked for at the terminal, hidden, once in a process."""

from __future__ import annotations

import os
import sys
import termios
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from getpass import getpass

from ..actors.io.directories import config_dir as configured
from ..actors.io.settings import load_settings
from ..actors.io.vault.vault import AskPassphrase, Vault
from ..protocol.errors import CallboardError, ConfigError, UsageError


def vault_of(config_dir: str | None, *, no_input: bool = False) -> Vault:
    """The vault of a configuration directory, for commands that have no root."""
    home, _ = configured(config_dir, os.environ)
    settings, _problems = load_settings(home)
    return Vault(settings, home, os.environ, ask=None if no_input or not has_terminal() else asking(nullcontext))


def names_to_complete(config_dir: str | None) -> list[str]:
    """The names in the vault, if it opens without asking for anything."""
    try:
        file = vault_of(config_dir, no_input=True).file
        return sorted(file.read()) if file is not None and file.opener.quick else []
    except CallboardError:
        return []  # the command itself says so


def has_terminal() -> bool:
    """Whether a person can be asked for something hidden, whatever standard input is."""
    if not sys.stderr.isatty():
        return False
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def asking(aside: Callable[[], AbstractContextManager[None]]) -> AskPassphrase:
    """Asks at the terminal, with what is drawn there taken `aside`."""

    async def ask(text: str) -> str:
        with aside():
            return await _in_thread(f"{text}: ")

    return ask


def hidden_line(text: str) -> str:
    """A line from the terminal that is not shown.

    Raises:
        UsageError: there is no line.
    """
    try:
        return getpass(text, stream=None)
    except EOFError as error:
        raise UsageError("nothing was typed") from error


async def _in_thread(text: str) -> str:
    """As `hidden_line`; a thread that is given up leaves the terminal as it was."""
    import trio  # which completion does without

    try:
        terminal = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)
    except OSError as error:
        raise ConfigError("the passphrase of the vault has to be typed, and there is no terminal") from error
    try:
        before = termios.tcgetattr(terminal)
        try:
            return await trio.to_thread.run_sync(hidden_line, text, abandon_on_cancel=True)
        finally:
            termios.tcsetattr(terminal, termios.TCSANOW, before)
    finally:
        os.close(terminal)
