"""How the terminal gets into a chat of the server: one that it opens, or one that is there already.

Also again, after the connection was lost. What happened meanwhile is told in order, each once (`presence`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...protocol.control import chat, own
from ...protocol.control.chat import ChatInfo
from ...protocol.errors import CallboardError, Denied
from .client import ChatClient
from .person_asked import PersonAsked
from .presence import Presence, opening_again
from .seen import Seen


class Joining:
    """See the module.

    Args:
        client: speaks to the server.
        opening: parameters of `_chat/open`.

    Attributes:
        told: called with each thing that was told before.
        changed: called with how the chat is.
    """

    def __init__(
        self, client: ChatClient, presence: Presence, seen: Seen, questions: PersonAsked, opening: Mapping[str, Any]
    ) -> None:
        self.told: Callable[[chat.Told], None] = lambda _: None
        self.changed: Callable[[ChatInfo], None] = lambda _: None
        self._client = client
        self._presence = presence
        self._seen = seen
        self._questions = questions
        self._opening = opening

    async def open(self) -> chat.Opened:
        """A new chat, or the one that is meant.

        Raises:
            CallboardError: it can't be opened, or is not there.
        """
        if self._presence.attach is None:
            return await self._client.ask("_chat/open", chat.Opened, **self._opening)
        listed = await self._client.ask("_chat/list", chat.ChatList)
        found = await self._client.ask("_chat/get", chat.OneChat, chat=self._presence.meant(listed.chats))
        return chat.Opened(chat=found.chat)

    async def open_again(self, info: ChatInfo) -> None:
        """A chat like this one, of which the server knows nothing any more."""
        opened = await self._client.ask("_chat/open", chat.Opened, **opening_again(info))
        self._presence.forget()
        self._seen.end_all("the run ended with its server")
        kept = "its session goes on" if info.session_id is not None else "what was said in it is gone"
        self._seen.print(f"connected again; the server was started anew, so this is a new chat: {kept}", "warning")
        self.changed(opened.chat)
        await self.watch(opened.chat.chat)

    async def watch(self, id: str) -> None:
        """Hears what happens in the chat, also by others, and what was missed of it."""
        watching = await self._client.ask("_chat/watch", chat.WatchingChat, chat=id, after=self._presence.last)
        for told in watching.told:
            self.told(told)
        self.changed(watching.chat)

    async def hear_questions(self) -> None:
        """Hears what agents ask, and forgets what is asked no more."""
        try:
            listed = await self._client.ask("_question/list", own.Questions)
            self._questions.only({str(each.get("id")) for each in listed.questions if isinstance(each, dict)})
            await self._client.ask("_question/subscribe", own.Watching)
        except CallboardError as error:
            if error.code != Denied.code:
                raise
            self._seen.print(f"questions of agents are for others to answer: {error}", "warning")
