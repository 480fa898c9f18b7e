"""Opening and leaving a chat of the server: a new one, or one that is already open.

After a lost connection the same methods resume it. Missed messages are displayed in order, each once (`presence`).
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
from .screen_output import ScreenOutput


class Reconnect:
    """Opening, watching and leaving of chats.

    Args:
        client: control channel client.
        opening: parameters of `_chat/open`.

    Attributes:
        replay: displays the backlog, given the messages and the active run.
        changed: callback for the chat's state.
    """

    def __init__(
        self,
        client: ChatClient,
        presence: Presence,
        seen: ScreenOutput,
        questions: PersonAsked,
        opening: Mapping[str, Any],
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
        """Open a new chat, or attach to the requested one.

        Raises:
            CallboardError: it can't be opened, or does not exist.
        """
        if self._presence.attach is None:
            opened = await self._client.ask("_chat/open", chat.Opened, **self._opening)
            self._presence.opened = opened.chat.chat
            return opened
        listed = await self._client.ask("_chat/list", chat.ChatList)
        found = await self._client.ask("_chat/get", chat.OneChat, chat=self._presence.chat_to_attach(listed.chats))
        return chat.Opened(chat=found.chat)

    async def open_again(self, info: ChatInfo) -> None:
        """Open a chat like a previous one that the server does not know any more."""
        opened = await self._client.ask("_chat/open", chat.Opened, **opening_again(info))
        self._presence.opened = opened.chat.chat
        self._presence.forget()
        for run in self._seen.under_way:
            self._seen.end(run, await self._what_became_of(run))
        kept = "its session continues" if info.session_id is not None else "its conversation is lost"
        self._seen.print(f"connected again; the server was restarted, so this is a new chat: {kept}", "warning")
        self.changed(opened.chat)
        await self.watch(opened.chat.chat)

    async def _what_became_of(self, run: str) -> str:
        """Describe the fate of a run that was active when its server died."""
        try:
            info = (await self._client.ask("_run/get", own.OneRun, run=run)).run
        except CallboardError:
            return "the run ended with its server"
        if info.over and info.life == 1 and not info.resumable:
            return "the run ended with its server"
        return f"the server continues the run; to see it: `.attach {run}`"

    async def watch(self, id: str) -> None:
        """Subscribe to the chat, including other clients' activity, and replay missed messages."""
        watching = await self._client.ask("_chat/watch", chat.WatchingChat, chat=id, after=self._presence.last)
        await self.replay(watching.told, watching.chat.run)
        self.changed(watching.chat)

    async def leave(self, id: str) -> None:
        """Unsubscribe from a chat and from questions."""
        self._questions.only(set())
        await self._client.ask("_chat/unwatch", own.Done, chat=id)
        if self._hearing is not None:
            await self._client.ask("_question/unsubscribe", own.Unsubscribed, subscription=self._hearing)

    async def hear_questions(self) -> None:
        """Subscribe to questions of agents, and remove questions that were closed meanwhile."""
        try:
            listed = await self._client.ask("_question/list", own.Questions)
            self._questions.only({str(each.get("id")) for each in listed.questions if isinstance(each, dict)})
            self._hearing = (await self._client.ask("_question/subscribe", own.Watching)).subscription
        except CallboardError as error:
            if error.code != Denied.code:
                raise
            self._seen.print(f"you can't answer questions of agents here: {error}", "warning")
