"""Layout of run logs on disk, and the summary file.

runs/                       0700
    .alive/<token>          locked by a live process (see `presence`)
    run-7f3a01bc/           0700
        run.json            0600, summary; always replaced as a whole
        events.jsonl        0600, one event per line, as `callboard.protocol.events.encode` writes it
        requests.1.jsonl    0600, recorded model calls, if enabled (see `work.models.recorder`)
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from .....protocol.control.things import RunInfo
from .....protocol.decoding import json_decoder
from .....protocol.requests import ID
from ....io.atomic_write import write_whole
from ....io.directories import private_directory

SUMMARY = "run.json"
EVENTS = "events.jsonl"
REQUESTS = "requests.{}.jsonl"


class StoredRun(msgspec.Struct, kw_only=True):
    """Content of `run.json`: the summary, and the token of the process that executes or executed the run."""

    version: int = 1
    process: str = ""
    info: RunInfo


_DECODER = json_decoder(StoredRun)


def is_id(run: str) -> bool:
    """Return True for a valid run id. No other text may become part of a path."""
    return ID.fullmatch(run) is not None


def read_summary(directory: Path) -> StoredRun | None:
    """Return the summary in a run's directory; None if it is missing or unreadable."""
    try:
        return _DECODER.decode((directory / SUMMARY).read_bytes())
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def write_summary(directory: Path, kept: StoredRun, *, sync: bool = True) -> None:
    """Replace the summary atomically; with `sync`, it also survives a power cut.

    Raises:
        OSError: it cannot be written; the old one is intact.
    """
    write_whole(directory / SUMMARY, msgspec.json.encode(kept), private=True, durable=sync)


def make_private(directory: Path) -> None:
    """Create a directory, and its parents, that only the current user may enter.

    Raises:
        OSError: it cannot be created.
    """
    private_directory(directory)
    if directory.stat().st_mode & 0o077:
        directory.chmod(0o700)
