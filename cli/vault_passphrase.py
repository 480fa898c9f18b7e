"""Vault with a passphrase from the terminal: hidden input, asked for once per process."""

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
    """Return the vault of a configuration directory, for commands without a root."""
    home, _ = configured(config_dir, os.environ)
    settings, _problems = load_settings(home)
    return Vault(settings, home, os.environ, ask=None if no_input or not has_terminal() else asking(nullcontext))


def names_to_complete(config_dir: str | None) -> list[str]:
    """Return the names in the vault, if it opens without any question."""
    try:
        file = vault_of(config_dir, no_input=True).file
        return sorted(file.read()) if file is not None and file.opener.quick else []
    except CallboardError:
        return []  # the command itself reports the error


def has_terminal() -> bool:
    """True if the terminal can be asked for hidden input, whatever standard input is."""
    if not sys.stderr.isatty():
        return False
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def asking(aside: Callable[[], AbstractContextManager[None]]) -> AskPassphrase:
    """Return a function that asks at the terminal, with the display cleared by `aside`."""

    async def ask(text: str) -> str:
        with aside():
            return await _in_thread(f"{text}: ")

    return ask


def hidden_line(text: str) -> str:
    """Read a line from the terminal without echo. Blocks.

    Raises:
        UsageError: there is no line.
    """
    try:
        return getpass(text, stream=None)
    except EOFError as error:
        raise UsageError("the passphrase is empty") from error


async def _in_thread(text: str) -> str:
    """Call `hidden_line` in a thread; if it is abandoned, the terminal keeps its modes."""
    import trio  # completion does not import it

    try:
        terminal = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)
    except OSError as error:
        raise ConfigError("the passphrase of the vault is needed, and there is no terminal to ask for it") from error
    try:
        before = termios.tcgetattr(terminal)
        try:
            return await trio.to_thread.run_sync(hidden_line, text, abandon_on_cancel=True)
        finally:
            termios.tcsetattr(terminal, termios.TCSANOW, before)
    finally:
        os.close(terminal)
