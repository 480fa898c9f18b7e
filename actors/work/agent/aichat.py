"""Agents in aichat's format: the keys of a `config.yaml` in an `index.yaml`, and tools in a `tools.txt`."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ....protocol.agent import Agent
from ....protocol.errors import InvalidFile
from ...io.file_fingerprints import record_read
from ..tools.registry import AICHAT_FILE

INDEX = AICHAT_FILE
"""Definition file, used where a directory has neither a `config.yaml` nor a `graph.yaml`."""

LISTED = "tools.txt"
"""File in the same directory with one global tool per line; lines that begin with `#` are comments."""


def with_listed(agent: Agent, directory: Path) -> Agent:
    """Return the agent of an `index.yaml` with the tools of its `tools.txt`.

    Raises:
        InvalidFile: `tools.txt` cannot be read.
    """
    file = record_read(directory / LISTED)
    if not file.is_file():
        return agent
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise InvalidFile(f"{file} can't be read: {error.strerror or error}") from error
    lines = (line.strip() for line in text.splitlines())
    listed = (line for line in lines if line and not line.startswith("#"))
    return msgspec.structs.replace(agent, global_tools=tuple(dict.fromkeys((*agent.global_tools, *listed))))
