"""Where the log of a run lies, and its summary.

runs/                       0700
    .alive/<token>          held by a process that lives (see `presence`)
    run-7f3a01bc/           0700
        run.json            0600, the summary; replaced as a whole
        events.jsonl        0600, one event a line, as `callboard.protocol.events.encode` writes it
        requests.1.jsonl    0600, what models saw and said, where that is kept (see `work.models.recorder`)
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from .....protocol.control.things import RunInfo
from .....protocol.decoding import json_decoder
from .....protocol.requests import ID
from ....io.directories import private_directory
from ....io.whole_file import write_whole

SUMMARY = "run.json"
EVENTS = "events.jsonl"
REQUESTS = "requests.{}.jsonl"


class Kept(msgspec.Struct, kw_only=True):
    """What `run.json` holds: the summary, and the token of the process that the run is or was in."""

    version: int = 1
    process: str = ""
    info: RunInfo


_DECODER = json_decoder(Kept)


def is_id(run: str) -> bool:
    """Whether it can be the id of a run; anything else must not come near a path."""
    return ID.fullmatch(run) is not None


def read_kept(directory: Path) -> Kept | None:
    """The summary in a run's directory; None if there is none that can be read."""
    try:
        return _DECODER.decode((directory / SUMMARY).read_bytes())
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def write_kept(directory: Path, kept: Kept, *, sync: bool = True) -> None:
    """Replace the summary as a whole; with `sync` it is there also after a power cut.

    Raises:
        OSError: it can't be written; the old one is still there.
    """
    write_whole(directory / SUMMARY, msgspec.json.encode(kept), private=True, durable=sync)


def make_private(directory: Path) -> None:
    """Make a directory that only its user may enter, and those above it.

    Raises:
        OSError: it can't be made.
    """
    private_directory(directory)
    if directory.stat().st_mode & 0o077:
        directory.chmod(0o700)
