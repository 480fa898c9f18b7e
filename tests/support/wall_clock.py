"""A wall clock that jumps, as one does that an administrator or a time server sets; trio's goes on as before."""

from __future__ import annotations

import sys
import time
from datetime import datetime, tzinfo
from typing import Any

import pytest

MODULES = (
    "callboard.supervisors.bus",
    "callboard.actors.front.control.runs.live_run",
    "callboard.actors.front.access.audit",
    "callboard.actors.runs.sessions.store",
    "callboard.actors.runs.sessions.summary",
)
"""Where `datetime.now` is looked up, as far as they are there."""

_real_time = time.time


def jump(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """From now on the wall clock is so many seconds ahead, or behind; until the test ends."""

    class Moved(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Any:
            return datetime.fromtimestamp(_real_time() + seconds, tz)

    monkeypatch.setattr(time, "time", lambda: _real_time() + seconds)
    for name in MODULES:
        module = sys.modules.get(name)
        if module is not None and getattr(module, "datetime", None) is not None:
            monkeypatch.setattr(module, "datetime", Moved)
