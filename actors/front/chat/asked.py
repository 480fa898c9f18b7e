"""Last prompt of a chat, stored so that it can be repeated."""

from __future__ import annotations

import msgspec


class LastPrompt(msgspec.Struct, frozen=True):
    """Text and attached files of a prompt."""

    text: str
    files: tuple[str, ...] = ()
