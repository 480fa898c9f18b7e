"""Registry of a hub's chats: creation, limits, and removal of abandoned ones."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ....protocol.errors import Saturated
from ..control.runs.running import sees
from .chat import Chat

if TYPE_CHECKING:
    from ....protocol.control.caller import Caller
    from ..control.hub import Hub

MOST_CHATS = 1000
MOST_OF_ONE = 100
"""Maximum number of chats of one subject."""

KEPT_FOR = 24 * 3600.0
"""Seconds without a request after which a kept chat may be closed to make room."""


class Chats:
    """Open chats of a hub, by id."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.open: dict[str, Chat] = {}

    def new(self, owner: str) -> Chat:
        """Return a new chat.

        Raises:
            Saturated: too many chats are open, of this owner or in total.
        """
        self._close_abandoned()
        own = sum(chat.owner == owner for chat in self.open.values())
        if own >= MOST_OF_ONE:
            raise Saturated(
                f"{owner} has {own} chats open, and that is as many as may be; _chat/list has them: close one"
            )
        if len(self.open) >= MOST_CHATS:
            raise Saturated(f"{MOST_CHATS} chats are open, and that is as many as may be; close one")
        chat = Chat(self.hub, owner, self)
        self.open[chat.id] = chat
        return chat

    def seen_by(self, caller: Caller) -> list[Chat]:
        """Return the chats that a caller may see, oldest first; callable from any thread."""
        return [chat for chat in list(self.open.values()) if sees(caller, chat.owner)]

    def _close_abandoned(self) -> None:
        """Close kept chats whose clients have been gone for long."""
        last = time.monotonic() - KEPT_FOR
        for chat in [each for each in self.open.values() if each.keep and each.touched < last]:
            if not (chat.busy or chat.run is not None or chat.watchers):
                self.close(chat)

    def close(self, chat: Chat) -> None:
        """Close a chat and cancel its work."""
        if self.open.pop(chat.id, None) is not None:
            chat.close()
