"""Loader of `mcp.json` from a configuration directory, or of `functions/mcp.json` as in Loki."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ....protocol.mcp.config import McpConfig, read_mcp
from ....protocol.problems import Problem
from ...io.directories import user_folder
from ...io.file_fingerprints import record_read

MAX_SIZE = 1024 * 1024
"""Bytes of a file at most. Real files are smaller than 20 KiB."""


def load_mcp(config_dir: Path) -> McpConfig:
    """Return the MCP servers of a configuration directory.

    Never raises: errors in the file, or in reading it, are in `problems`, so that runs without servers still work.
    Without a file there are no servers. If both files exist, only `mcp.json` counts, and a warning names the other one.
    """
    first, second = config_dir / "mcp.json", user_folder("functions", config_dir) / "mcp.json"
    # Both, because a new first file takes precedence over the second.
    record_read(first)
    record_read(second)
    if not _is_there(first):
        return _load(second) if _is_there(second) else McpConfig(file=str(first))
    config = _load(first)
    if not _is_there(second):
        return config
    unread = Problem(
        severity="warning",
        file=str(second),
        code="ignored_file",
        message=f"this file is ignored, because {first} exists, too",
        hint="move its servers to that file, and remove this one.",
    )
    return msgspec.structs.replace(config, problems=(*config.problems, unread))


def _is_there(file: Path) -> bool:
    return file.exists() or file.is_symlink()


def _load(file: Path) -> McpConfig:
    try:
        if file.exists() and not file.is_file():
            return _unreadable(file, "it is not a regular file")
        if file.stat().st_size > MAX_SIZE:
            return _unreadable(file, f"it is larger than {MAX_SIZE // 1024} KiB")
        return read_mcp(file.read_text(encoding="utf-8"), str(file))
    except UnicodeDecodeError as error:
        return _unreadable(file, f"it is not UTF-8 text (byte {error.start})")
    except OSError as error:
        return _unreadable(file, error.strerror or str(error))


def _unreadable(file: Path, why: str) -> McpConfig:
    problem = Problem(severity="error", file=str(file), code="unreadable", message=f"the file can't be read: {why}")
    return McpConfig(file=str(file), problems=(problem,))
