"""Opening and leaving a chat of the server, and resuming it after a lost connection.

The connection may break, and other clients may send lines. `Presence` is the state of the shared chat at this terminal.
Each message is displayed once and in order, by its number. For a line without an answer, a run that it started proves
that it was received; otherwise it may have to be sent again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from ...protocol.control import chat, method_structs
from ...protocol.control.chat import ChatInfo
from ...protocol.errors import CallboardError, Denied, NotFound, UsageError
from ...protocol.relative_time import age, seconds_since
from ..control.client import beginning
from ..render.text import one_line, table
from .client import ChatClient
from .display import ScreenOutput
from .server_requests import PersonAsked

_LISTED = 20
"""Maximum number of chats listed in an ambiguity error."""


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
            info = (await self._client.ask("_run/get", method_structs.OneRun, run=run)).run
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
        await self._client.ask("_chat/unwatch", method_structs.Done, chat=id)
        if self._hearing is not None:
            await self._client.ask("_question/unsubscribe", method_structs.Unsubscribed, subscription=self._hearing)

    async def hear_questions(self) -> None:
        """Subscribe to questions of agents, and remove questions that were closed meanwhile."""
        try:
            listed = await self._client.ask("_question/list", method_structs.Questions)
            self._questions.only({str(each.get("id")) for each in listed.questions if isinstance(each, dict)})
            self._hearing = (await self._client.ask("_question/subscribe", method_structs.Watching)).subscription
        except CallboardError as error:
            if error.code != Denied.code:
                raise
            self._seen.print(f"you can't answer questions of agents here: {error}", "warning")


class Presence:
    """Deduplication of messages and tracking of sent lines.

    Args:
        place: URL of the server; "" for a hub in this process.
        attach: start of the id of an open chat; "" for the only one.

    Attributes:
        place, attach: the arguments; `attach` is None while the terminal is in the chat that it opened.
        opened: id of that chat.
        last: highest message number so far.
    """

    def __init__(self, place: str = "", attach: str | None = None) -> None:
        self.place = place
        self.attach = attach
        self.opened: str | None = None
        self.last = 0
        self._seen: set[int] = set()
        self._under_way: list[str] = []
        self._unsure: list[str] = []

    def is_new(self, seq: int) -> bool:
        """Record a message number; return False if it was recorded before. Number 0 is always new."""
        if seq in self._seen:
            return False
        if seq:
            self._seen.add(seq)
            self.last = max(self.last, seq)
        return True

    def forget(self) -> None:
        """Reset the numbers for another chat."""
        self.last = 0
        self._seen.clear()

    def go_over(self, id: str) -> None:
        """Switch to another chat; pending lines belong to the previous one."""
        self.attach = None if id == self.opened else id
        self.forget()
        self._under_way.clear()
        self._unsure.clear()

    def sends(self, text: str) -> str:
        """Record a sent line; return its key for `answered` and `unanswered`."""
        line = text.strip("\n")
        self._under_way.append(line)
        return line

    def answered(self, line: str) -> None:
        """Remove a line that was executed or refused."""
        if line in self._under_way:
            self._under_way.remove(line)

    def unanswered(self, line: str) -> None:
        """Record that the connection was lost before the answer. A run that the line started shows its own end."""
        if line in self._under_way:
            self._under_way.remove(line)
            self._unsure.append(line)

    def is_ours(self, prompt: str) -> bool:
        """Return True if a new run belongs to a line of this terminal, which is displayed already."""
        for lines in (self._under_way, self._unsure):
            if prompt in lines:
                lines.remove(prompt)
                return True
        return bool(self._under_way)  # a command of this terminal, which sends a prompt of its own

    def take_unanswered(self) -> list[str]:
        """Return the lines without an answer that started no known run, each once."""
        lines, self._unsure = self._unsure, []
        return lines

    def chat_to_attach(self, chats: Iterable[chat.ChatInfo]) -> str:
        """Return the id of the chat to attach to.

        Raises:
            UsageError: several ids begin with `attach`.
            NotFound: no id does.
        """
        assert self.attach is not None
        known, word = list(chats), one_line(self.attach, 60)
        ids = beginning(self.attach, [each.chat for each in known], "chat")
        if not known and not word:
            raise NotFound(f"there is no chat to attach to: none is open at {self.place}")
        if not known:
            raise NotFound(f"there is no chat '{word}': none is open at {self.place}")
        if not ids:
            raise NotFound(f"there is no chat '{word}'; open at {self.place} are\n{_listed(known)}")
        if len(ids) > 1 and not word:
            raise UsageError(f"several chats are open at {self.place}; --attach takes the id of one\n{_listed(known)}")
        if len(ids) > 1:
            several = [each for each in known if each.chat in ids]
            raise UsageError(f"'{word}' begins the ids of several chats:\n{_listed(several)}")
        return ids[0]


def _listed(chats: list[chat.ChatInfo]) -> str:
    """Return a table of the chats, newest first."""
    newest = sorted(chats, key=lambda each: each.started, reverse=True)
    rows = [("CHAT", "SINCE", "WITH", "SESSION", "TITLE")]
    rows += [
        (
            one_line(each.chat, 40),
            age(seconds_since(each.started)),
            one_line(each.agent or each.role or each.model, 40),
            one_line(each.session or "", 30),
            one_line(each.title or "", 60),
        )
        for each in newest[:_LISTED]
    ]
    more = f"and {len(newest) - _LISTED} more" if len(newest) > _LISTED else ""
    return (table(rows) + more).rstrip("\n")


def opening_again(info: chat.ChatInfo) -> dict[str, object]:
    """Return parameters of `_chat/open` for a chat like a previous one."""
    session = info.session if info.session_id is not None else ("" if info.session is not None else None)
    if session is None and info.session_id is not None:  # a stored chat without a name
        return {"reopen": info.session_id, "preludes": False, "keep": True, "store": True}
    return {
        "agent": info.agent,
        "role": info.role,
        "session": session,
        "rag": info.rag,
        "model": info.model if info.agent is None and info.model else None,
        "preludes": False,
        "keep": True,
    }
