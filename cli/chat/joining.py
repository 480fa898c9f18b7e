"""How the terminal gets into a chat of the server, and out of it: one that it opens, or one that is there already.

Also again, after the connection was lost. What happened meanwhile is told in order, each once (`presence`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
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
        replay: shows what was told before; called with that, and with the run that is under way.
        changed: called with how the chat is.
    """

    def __init__(
        self, client: ChatClient, presence: Presence, seen: Seen, questions: PersonAsked, opening: Mapping[str, Any]
    ) -> None:
        self.replay: Callable[[list[chat.Told], str | None], Awaitable[None]]
        self.changed: Callable[[ChatInfo], None] = lambda _: None
        self._client = client
        self._presence = presence
        self._seen = seen
        self._questions = questions
        self._opening = opening
        self._hearing: str | None = None

    async def open(self) -> chat.Opened:
        """A new chat, or the one that is meant.

        Raises:
            CallboardError: it can't be opened, or is not there.
        """
        if self._presence.attach is None:
            opened = await self._client.ask("_chat/open", chat.Opened, **self._opening)
            self._presence.opened = opened.chat.chat
            return opened
        listed = await self._client.ask("_chat/list", chat.ChatList)
        found = await self._client.ask("_chat/get", chat.OneChat, chat=self._presence.meant(listed.chats))
        return chat.Opened(chat=found.chat)

    async def open_again(self, info: ChatInfo) -> None:
        """A chat like this one, of which the server knows nothing any more."""
        opened = await self._client.ask("_chat/open", chat.Opened, **opening_again(info))
        self._presence.opened = opened.chat.chat
        self._presence.forget()
        for run in self._seen.under_way:
            self._seen.end(run, await self._what_became_of(run))
        kept = "its session goes on" if info.session_id is not None else "what was said in it is gone"
        self._seen.print(f"connected again; the server was started anew, so this is a new chat: {kept}", "warning")
        self.changed(opened.chat)
        await self.watch(opened.chat.chat)

    async def _what_became_of(self, run: str) -> str:
        """Of a run that was under way when its server died, in words."""
        try:
            info = (await self._client.ask("_run/get", own.OneRun, run=run)).run
        except CallboardError:
            return "the run ended with its server"
        if info.over and info.life == 1 and not info.resumable:
            return "the run ended with its server"
        return f"the server goes on with the run; `.attach {run}` shows it"

    async def watch(self, id: str) -> None:
        """Hears what happens in the chat, also by others, and what was missed of it."""
        watching = await self._client.ask("_chat/watch", chat.WatchingChat, chat=id, after=self._presence.last)
        await self.replay(watching.told, watching.chat.run)
        self.changed(watching.chat)

    async def leave(self, id: str) -> None:
        """Hears no more of a chat, and of questions."""
        self._questions.only(set())
        await self._client.ask("_chat/unwatch", own.Done, chat=id)
        if self._hearing is not None:
            await self._client.ask("_question/unsubscribe", own.Unsubscribed, subscription=self._hearing)

    async def hear_questions(self) -> None:
        """Hears what agents ask, and forgets what is asked no more."""
        try:
            listed = await self._client.ask("_question/list", own.Questions)
            self._questions.only({str(each.get("id")) for each in listed.questions if isinstance(each, dict)})
            self._hearing = (await self._client.ask("_question/subscribe", own.Watching)).subscription
        except CallboardError as error:
            if error.code != Denied.code:
                raise
            self._seen.print(f"questions of agents are for others to answer: {error}", "warning")
