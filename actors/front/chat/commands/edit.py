"""Editing of files: the client opens an editor with the text, and the result is checked and written."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import trio

from .....protocol.errors import ConfigError, InvalidFile, NotKept
from .....protocol.mcp.read_config import read_mcp
from .....protocol.problems import Problem, errors_in
from .....protocol.settings.read import read_settings
from ....io.atomic_write import write_whole
from ....io.directories import config_file, user_folder
from ..command_line import ChatLine, command

Check = Callable[[str, str], Sequence[Problem]]
"""Function from a text and its file name to the problems in it."""

_NEW_MCP = '{\n  "mcpServers": {}\n}\n'
_SCOPES = ("run:files", "admin:mcp")


async def edit_file(line: ChatLine, file: Path, *, check: Check | None, new: str = "") -> bool:
    """Open a file in the user's editor; returns False if it was not changed.

    Args:
        check: returns problems; errors among them are shown, and the text is edited again.
        new: initial text for a missing file.

    Raises:
        ConfigError, NotKept: the file cannot be read or written.
    """
    try:
        before = await trio.to_thread.run_sync(_text_of, file, new)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} can't be read: {error}") from None

    def keep(text: str) -> None:
        if check is not None and (found := errors_in(check(text, str(file)))):
            raise InvalidFile("\n".join(map(str, found)))
        try:
            _write(file, text)
        except OSError as error:
            raise NotKept(f"{file} can't be written: {error.strerror or error}") from None

    if await line.edit_until(str(file), before, keep) is None:
        return False
    await line.note(f"wrote {file}")
    return True


def _text_of(file: Path, new: str) -> str:
    return file.read_text(encoding="utf-8") if file.exists() else new


def _write(file: Path, text: str) -> None:
    # Write through a symbolic link instead of replacing it.
    real = file.resolve()
    real.parent.mkdir(parents=True, exist_ok=True)
    mode = real.stat().st_mode & 0o777 if real.exists() else 0o600  # private by default: it may contain an API key
    write_whole(real, text.encode(), private=True)
    real.chmod(mode)


@command(".edit config", "Edit config.yaml", scopes=_SCOPES, in_macros=False)
async def _config(line: ChatLine) -> None:
    def check(text: str, file: str) -> Sequence[Problem]:
        return read_settings(text, file, dict(os.environ))[1]

    if await edit_file(line, config_file(line.root.config_dir), check=check):
        await line.note("Takes effect when callboard starts again; `.set` changes most settings of this chat at once.")


@command(".edit mcp-config", "Edit mcp.json", scopes=_SCOPES, in_macros=False)
async def _mcp_config(line: ChatLine) -> None:
    first, second = line.root.config_dir / "mcp.json", user_folder("functions", line.root.config_dir) / "mcp.json"
    file = second if second.exists() and not first.exists() else first

    def check(text: str, name: str) -> Sequence[Problem]:
        return read_mcp(text, name).problems

    if await edit_file(line, file, check=check, new=_NEW_MCP):
        names = await line.hub.mcp_reload(line.caller)
        await line.note(f"read again: {', '.join(names)}" if names else "mcp.json was read again.")
