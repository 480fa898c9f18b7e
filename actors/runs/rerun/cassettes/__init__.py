"""Cassettes (`protocol/cassette`): a run recorded into a file, and repeated from it.

`playback_of` chooses between both. `recording` writes a cassette while a run executes, `playback` replays a run from
one. `content` has the JSON forms of requests and effects, with names in place of paths that differ between machines.
Both halves are imported at their first use, since most runs have no cassette.

May import runs/, work/playback and the layers below. Names to know: `playback_of`, `CassetteRecording`,
`CassettePlayback`, `RemainingLines`, `NamedPaths`. Start with `playback`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from .....protocol.errors import UsageError

if TYPE_CHECKING:
    from ....work.playback import Playback


def prompt_of(cassette: str | os.PathLike[str]) -> str:
    """Return the prompt of the recorded run. Raises as `playback_of` does."""
    from .....protocol.cassette import Head
    from .playback import read

    head = read(Path(cassette))[0]
    assert isinstance(head, Head)
    return head.prompt


def playback_of(
    record: str | os.PathLike[str] | None,
    replay: str | os.PathLike[str] | None,
    *,
    loose: bool = False,
    durable: bool = False,
) -> Playback | None:
    """Return the playback that records a run into the file `record`, or replays it from `replay`; None for neither.

    Raises:
        UsageError: the arguments contradict each other, or the cassette does not exist.
        InvalidFile: the file is no cassette.
    """
    if record is not None and replay is not None:
        raise UsageError("a run can't be recorded and replayed at the same time: use either --record or --replay")
    if record is not None:
        from .recording import CassetteRecording

        return CassetteRecording(Path(record))
    if replay is None:
        return None
    if durable:
        raise UsageError("a run that is replayed from a cassette can't be durable: use either --replay or --durable")
    from .playback import CassettePlayback

    return CassettePlayback(Path(replay), loose=loose)
