"""What was asked, so that it can be asked again."""

from __future__ import annotations

import msgspec


class Prompt(msgspec.Struct, frozen=True):
    """What was asked last: the words, and the files that came along."""

    text: str
    files: tuple[str, ...] = ()
