"""Storage of a chat's messages: in memory, or in a session of the store. Both use a `Session`.

The memory outside of sessions is lost with the chat, and when the role or agent changes. A temporary session is in
memory too; when it ends, the user is asked whether to save it.

Other processes may change a stored session at any time. So a position in the message list is not enough to identify an
exchange: `PromptStart` also stores the message that it expects there, and `last` compares the two.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from ....protocol.chat import AssistantTurn
from ....protocol.session import Session, turns_of
from ...runs.loading import RunCallbacks
from ...runs.sessions.names import TEMP
from ...runs.sessions.session_locks import forget_all
from ...runs.sessions.store import Stored
from ...work.agent.history import estimate

if TYPE_CHECKING:
    from ....protocol.control.caller import Caller
    from ....protocol.requests import RunRequest
    from ....protocol.settings import Settings
    from ..control.hub import Hub
    from ..control.sessions import SessionTurn


Message = dict[str, Any]


@dataclass(eq=False)
class PromptStart:
    """Prompt of the user, with the range of its messages in the session.

    Attributes:
        at: index of its first message.
        end: index after its last message once its run is over; `at` while the run has added nothing.
        first: its first message; None while the run has added nothing.
        run: id of the run that answered it.
    """

    at: int
    end: int = 0
    first: Message | None = None
    run: str | None = None

    @property
    def has_messages(self) -> bool:
        """True if its run added messages."""
        return self.end > self.at

    def is_in(self, messages: list[Message]) -> bool:
        """Return True if its messages are still at their position; other processes may change the session."""
        return self.has_messages and self.end <= len(messages) and messages[self.at] == self.first


def wish(session: Session, settings: Settings) -> bool | None:
    """Return `save_session` of the session, else of config.yaml; None if neither has it, so that the user is asked."""
    found = session.save_session
    if found is None:
        found = settings.other.get("save_session")
    return found if isinstance(found, bool) else None


RemovedExchange = tuple[PromptStart, list[Message]]
"""An exchange that was removed, with its messages."""


class ChatStorage:
    """Session in use by a chat.

    Args:
        stored: current state of a session in the store, or of one without a file.
        kept: whether the session is in the store.
        temporary: whether it is a session without a name.

    Attributes:
        stored, kept, temporary: see the arguments.
        starts: prompts of the user with their positions, as far as known.
    """

    def __init__(self, stored: Stored, *, kept: bool = False, temporary: bool = False) -> None:
        self.stored = stored
        self.kept = kept
        self.temporary = temporary
        self.starts: list[PromptStart] = []

    @classmethod
    def in_memory(
        cls,
        agent: str | None = None,
        session: Session | None = None,
        *,
        temporary: bool = False,
        alias: str | None = None,
    ) -> ChatStorage:
        """Return a session without a file, for the given agent and alias."""
        alias = TEMP if temporary else alias
        stored = Stored(id=TEMP, alias=alias, agent=agent, session=session or Session())
        return cls(stored, temporary=temporary)

    @classmethod
    def of(cls, stored: Stored, settings: Settings) -> ChatStorage:
        """Return a session of the store, held in memory if it must not be saved."""
        return cls(stored, kept=wish(stored.session, settings) is not False)

    @property
    def session(self) -> Session:
        """Content of the session; modify it only within `change`."""
        return self.stored.session

    @property
    def name(self) -> str:
        """Name of the session that users see."""
        return TEMP if self.temporary else self.stored.alias or self.stored.id

    @property
    def is_empty(self) -> bool:
        """True if the session has no messages."""
        return not (self.session.messages or self.session.compressed_messages)

    @property
    def turns(self) -> int:
        """Number of answers that the next request includes."""
        answers = (turn for turn in turns_of(self.session) if isinstance(turn, AssistantTurn))
        return sum(not turn.tool_calls for turn in answers)

    @property
    def tokens(self) -> int:
        """Estimated number of tokens of the conversation."""
        return estimate(turns_of(self.session))

    @property
    def last_reply(self) -> str | None:
        """Last text of the model; None if there is none."""
        said = (turn.text for turn in reversed(turns_of(self.session)) if isinstance(turn, AssistantTurn))
        return next((text for text in said if text), None)

    def apart(self) -> ChatStorage:
        """Return a copy of the conversation in memory, so that later messages do not get into the session's file."""
        place = ChatStorage(self.stored)
        place.starts = list(self.starts)
        return place

    async def store(self, hub: Hub, caller: Caller, about: Mapping[str, str]) -> None:
        """Store the content as a session without a name.

        Args:
            about: additional keys of its file.
        """
        session, agent, store = self.session, self.stored.agent, hub.root.sessions.store
        session.other = {**session.other, **about}
        self.stored = await trio.to_thread.run_sync(lambda: store.create(agent, None, session, caller=caller))
        self.kept = True

    async def discard(self, hub: Hub, caller: Caller) -> None:
        """Delete the file, and hold its content in memory."""
        stored, self.kept = self.stored, False
        self.stored = Stored(id=TEMP, alias=None, agent=stored.agent, session=stored.session)
        await hub.root.sessions.delete(caller, stored.id, agent=stored.agent)

    async def resume(self, hub: Hub, caller: Caller) -> bool:
        """Continue with the session's file, without the messages since; returns False if there is none."""
        if self.kept or self.stored.id == TEMP:
            return False
        async with hub.root.sessions.change(caller, self.stored.id, None) as turn:
            turn.session.save_session = True
        self.kept = True
        self.starts.clear()
        await self.refresh(hub, caller)
        return True

    async def refresh(self, hub: Hub, caller: Caller) -> None:
        """Read the session again from the store."""
        if self.kept:
            self.stored = await hub.root.sessions.get(caller, self.stored.id)

    async def prepare(self, hub: Hub, caller: Caller, settings: Settings) -> bool:
        """Read the session again before a prompt; returns False if it must no longer be saved and is now in memory."""
        await self.refresh(hub, caller)
        # The user disabled saving since the last prompt: continue in memory, and leave the file as it is.
        if self.kept and wish(self.session, settings) is False:
            self.kept = False
            return False
        return True

    @asynccontextmanager
    async def change(self, hub: Hub, caller: Caller) -> AsyncIterator[Session]:
        """Yield the session for modification, and store it afterwards.

        Raises:
            Conflict: another process holds the session.
        """
        if not self.kept:
            yield self.session
            return
        async with hub.root.sessions.change(caller, self.stored.id, None) as turn:
            yield turn.session
        await self.refresh(hub, caller)

    async def empty(self, hub: Hub, caller: Caller) -> None:
        """Delete all messages."""
        async with self.change(hub, caller) as session:
            forget_all(session)
        self.starts.clear()

    async def begin(
        self, hub: Hub, caller: Caller, request: RunRequest, hooks: RunCallbacks, *, title: str
    ) -> SessionTurn:
        """Start the next turn with this prompt; returns when its run has begun."""
        if self.kept:
            return await hub.sessions.begin(caller, self.stored.id, request, hooks, title=title, keep=True)
        return await hub.sessions.begin_in_memory(caller, self.stored, request, hooks, title=title)

    def mark(self) -> PromptStart:
        """Record that a prompt starts at the end of the messages."""
        at = len(self.session.messages)
        start = PromptStart(at, at)
        self.starts.append(start)
        return start

    def record_messages(self, start: PromptStart, at: int, count: int) -> None:
        """Record that a prompt has added `count` messages from index `at`, unless the session no longer has them."""
        messages = self.session.messages
        if count and at + count <= len(messages):
            start.at, start.end, start.first = at, at + count, messages[at]

    def drop_vain(self) -> bool:
        """Forget the latest prompts whose runs added nothing; returns True if there were any."""
        before = len(self.starts)
        while self.starts and not self.starts[-1].has_messages:
            self.starts.pop()
        return len(self.starts) < before

    def last(self) -> PromptStart | None:
        """Return the last exchange of the chat, or of the session if the chat's own is unknown; None without any."""
        messages = self.session.messages
        # Prompts without any result have no messages, so the last exchange is an earlier one.
        start = next((each for each in reversed(self.starts) if each.has_messages), None)
        if start is not None and start.is_in(messages):
            return start
        # Another process has changed the messages, so the recorded positions are wrong.
        self.starts = [each for each in self.starts if not each.has_messages]
        # `within` marks user messages inside an exchange, such as steering and summaries.
        begins = [each.get("role") == "user" and not each.get("within") for each in messages]
        users = [at for at, begin in enumerate(begins) if begin]
        return PromptStart(users[-1], len(messages), messages[users[-1]]) if users else None

    def last_exchange(self) -> list[Message]:
        """Return the messages of the last exchange; empty without any."""
        start = self.last()
        return [] if start is None else self.session.messages[start.at : start.end]

    async def remove_last(self, hub: Hub, caller: Caller) -> RemovedExchange | None:
        """Remove the last exchange and return it; None if there is none. Later messages of others stay."""
        await self.refresh(hub, caller)
        if self.last() is None:
            return None
        async with self.change(hub, caller) as session:
            self.stored.session = session  # the state under the lock may differ from the one just read
            start = self.last()
            if start is None:
                return None
            taken = session.messages[start.at : start.end]
            session.messages = [*session.messages[: start.at], *session.messages[start.end :]]
        if start in self.starts:
            self.starts = self.starts[: self.starts.index(start)]
        return start, taken

    async def put_back(self, hub: Hub, caller: Caller, start: PromptStart, taken: list[Message]) -> None:
        """Insert a removed exchange at its old position, or at the end of a session that has become shorter."""
        async with self.change(hub, caller) as session:
            at = min(start.at, len(session.messages))
            session.messages = [*session.messages[:at], *taken, *session.messages[at:]]
        self.drop_vain()
        start.at, start.end = at, at + len(taken)
        self.starts.append(start)


class LastPrompt(msgspec.Struct, frozen=True):
    """Text and attached files of a prompt."""

    text: str
    files: tuple[str, ...] = ()
