"""State of a configuration directory before a change: hashes of files, and the text of mcp.json."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from ....protocol.errors import Conflict, InvalidFile
from ....protocol.mcp.editing import EMPTY, entries_of, with_entry, without_entry
from .carry_out import NewFile
from .layout import MCP_FILES
from .record import hash_of, hash_of_entry


class ConfigState(msgspec.Struct, frozen=True, kw_only=True):
    """State of a configuration directory: hashes of some files, and the text of mcp.json."""

    files: dict[str, str]
    mcp_file: str
    mcp_text: str

    @classmethod
    def of(cls, base: Path, paths: Mapping[str, object]) -> ConfigState:
        files = {path: hash for path in paths if (hash := _hash_at(base / path)) is not None}
        mcp_file = next((name for name in MCP_FILES if (base / name).exists()), MCP_FILES[0])
        text = ""
        with suppress(FileNotFoundError):
            try:
                text = (base / mcp_file).read_bytes().decode("utf-8")  # bytes, to preserve the line endings
            except (OSError, UnicodeDecodeError) as error:
                if isinstance(error, FileNotFoundError):
                    raise
                raise InvalidFile(f"{base / mcp_file} can't be read: {error}") from error
        return cls(files=files, mcp_file=mcp_file, mcp_text=text)

    @property
    def servers(self) -> dict[str, object]:
        return entries_of(self.mcp_text, self.mcp_file) if self.mcp_text.strip() else {}

    @property
    def server_hashes(self) -> dict[str, str]:
        return {name: hash_of_entry(entry) for name, entry in self.servers.items()}


def _hash_at(file: Path) -> str | None:
    try:
        return hash_of(file.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except IsADirectoryError:
        raise Conflict(f"{file} is a directory, and a file is to go there; move it away") from None
    except OSError as error:
        raise Conflict(f"{file} can't be read: {error.strerror or error}") from error


def mcp_put(state: ConfigState, entries: Mapping[str, object], gone: list[str]) -> dict[str, NewFile]:
    if not entries and not gone:
        return {}
    text = state.mcp_text if state.mcp_text.strip() else EMPTY
    for name in gone:
        text = without_entry(text, name, state.mcp_file)
    for name, entry in entries.items():
        text = with_entry(text, name, entry, state.mcp_file)
    return {state.mcp_file: NewFile(text.encode(), personal=True)}
