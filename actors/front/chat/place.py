"""Where a chat keeps what was said: in memory, or in a session of the store. Both are a `Session`.

A chat remembers what was said also without a session; that memory goes with the chat, and with a change of role or
agent. A temporary session is in memory, too, and asks at its end whether it is to be kept.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import trio

from ....protocol.chat import AssistantTurn
from ....protocol.session import Session
from ....protocol.session_turns import turns_of
from ...runs.loading import Hooks
from ...runs.sessions.live import forget_all
from ...runs.sessions.names import TEMP
from ...runs.sessions.store import Stored
from ...work.agent.compaction import estimate

if TYPE_CHECKING:
    from ....protocol.control.caller import Caller
    from ....protocol.requests import RunRequest
    from ....protocol.settings import Settings
    from ..control.hub import Hub
    from ..control.sessions import SessionTurn

Message = dict[str, Any]


@dataclass(eq=False)
class Start:
    """A prompt of the person's, and where what came of it lies among the messages.

    Attributes:
        at: how many messages stood before it.
        end: how many stood there when its run was over; `at` as long as it has brought nothing.
        first: the message that it is.
        run: the run that answered it.
    """

    at: int
    end: int = 0
    first: Message | None = None
    run: str | None = None

    @property
    def brought(self) -> bool:
        """Whether anything came of it."""
        return self.end > self.at

    def is_in(self, messages: list[Message]) -> bool:
        """Whether it stands there still; others change a session, too."""
        return self.brought and self.end <= len(messages) and messages[self.at] == self.first


def wish(session: Session, settings: Settings) -> bool | None:
    """Whether the session is to be kept; None to ask."""
    found = session.save_session
    if found is None:
        found = settings.other.get("save_session")
    return found if isinstance(found, bool) else None


Taken = tuple[Start, list[Message]]
"""An exchange that was taken out."""


class Place:
    """Where what is said lies.

    Args:
        stored: of a session of the store as it is at the moment; else one without a file.
        kept: whether it is one of the store.
        temporary: whether it is a session without a name.

    Attributes:
        stored, kept, temporary: as given.
        starts: where each prompt of the person's begins, as long as that is known, and its run.
    """

    def __init__(self, stored: Stored, *, kept: bool = False, temporary: bool = False) -> None:
        self.stored = stored
        self.kept = kept
        self.temporary = temporary
        self.starts: list[Start] = []

    @classmethod
    def in_memory(
        cls,
        agent: str | None = None,
        session: Session | None = None,
        *,
        temporary: bool = False,
        alias: str | None = None,
    ) -> Place:
        """One that has no file. `agent` is whose session it would be, `alias` its name."""
        alias = TEMP if temporary else alias
        stored = Stored(id=TEMP, alias=alias, agent=agent, session=session or Session())
        return cls(stored, temporary=temporary)

    @classmethod
    def of(cls, stored: Stored, settings: Settings) -> Place:
        """A session of the store, in memory if it is not to be kept."""
        return cls(stored, kept=wish(stored.session, settings) is not False)

    @property
    def session(self) -> Session:
        """What is known of it; to be changed only within `change`."""
        return self.stored.session

    @property
    def name(self) -> str:
        """What it is called."""
        return TEMP if self.temporary else self.stored.alias or self.stored.id

    @property
    def is_empty(self) -> bool:
        """Whether nothing was said."""
        return not (self.session.messages or self.session.compressed_messages)

    @property
    def turns(self) -> int:
        """How many answers it remembers: those that the next request holds."""
        answers = (turn for turn in turns_of(self.session) if isinstance(turn, AssistantTurn))
        return sum(not turn.tool_calls for turn in answers)

    @property
    def tokens(self) -> int:
        """What it holds, estimated."""
        return estimate(turns_of(self.session))

    @property
    def last_reply(self) -> str | None:
        """What the model has said last."""
        said = (turn.text for turn in reversed(turns_of(self.session)) if isinstance(turn, AssistantTurn))
        return next((text for text in said if text), None)

    def apart(self) -> Place:
        """The same in memory: what is said from now on does not get into the file."""
        place = Place(self.stored)
        place.starts = list(self.starts)
        return place

    async def store(self, hub: Hub, caller: Caller, about: Mapping[str, str]) -> None:
        """Make a session of the store, without a name, of what is in memory; `about` are keys of its file."""
        session, agent, store = self.session, self.stored.agent, hub.root.sessions.store
        session.other = {**session.other, **about}
        self.stored = await trio.to_thread.run_sync(lambda: store.create(agent, None, session, caller=caller))
        self.kept = True

    async def discard(self, hub: Hub, caller: Caller) -> None:
        """Remove its file; what it holds is in memory from now on."""
        stored, self.kept = self.stored, False
        self.stored = Stored(id=TEMP, alias=None, agent=stored.agent, session=stored.session)
        await hub.root.sessions.delete(caller, stored.id, agent=stored.agent)

    async def resume(self, hub: Hub, caller: Caller) -> bool:
        """Go on in the session's file, which what was said meanwhile does not get into; false if there is none."""
        if self.kept or self.stored.id == TEMP:
            return False
        async with hub.root.sessions.change(caller, self.stored.id, None) as turn:
            turn.session.save_session = True
        self.kept = True
        self.starts.clear()
        await self.refresh(hub, caller)
        return True

    async def refresh(self, hub: Hub, caller: Caller) -> None:
        """See what has become of it."""
        if self.kept:
            self.stored = await hub.root.sessions.get(caller, self.stored.id)

    async def prepare(self, hub: Hub, caller: Caller, settings: Settings) -> bool:
        """See what has become of it before a prompt; false if it is not to be kept any more, and is in memory now."""
        await self.refresh(hub, caller)
        if self.kept and wish(self.session, settings) is False:
            self.kept = False
            return False
        return True

    @asynccontextmanager
    async def change(self, hub: Hub, caller: Caller) -> AsyncIterator[Session]:
        """The session, to be changed.

        Raises:
            Conflict: another process works with it.
        """
        if not self.kept:
            yield self.session
            return
        async with hub.root.sessions.change(caller, self.stored.id, None) as turn:
            yield turn.session
        await self.refresh(hub, caller)

    async def empty(self, hub: Hub, caller: Caller) -> None:
        """Forget all that was said."""
        async with self.change(hub, caller) as session:
            forget_all(session)
        self.starts.clear()

    async def begin(self, hub: Hub, caller: Caller, request: RunRequest, hooks: Hooks, *, title: str) -> SessionTurn:
        """The prompt is the next that is said here; returns when its run has begun."""
        if self.kept:
            return await hub.sessions.begin(caller, self.stored.id, request, hooks, title=title, keep=True)
        return await hub.sessions.begin_in_memory(caller, self.stored, request, hooks, title=title)

    def mark(self) -> Start:
        """A prompt of the person's comes now."""
        at = len(self.session.messages)
        start = Start(at, at)
        self.starts.append(start)
        return start

    def brought(self, start: Start, at: int, count: int) -> None:
        """A prompt has brought so many messages, from `at` on."""
        messages = self.session.messages
        if count and at + count <= len(messages):
            start.at, start.end, start.first = at, at + count, messages[at]

    def drop_vain(self) -> bool:
        """Forget the last prompts, as far as nothing came of them; whether there were any."""
        before = len(self.starts)
        while self.starts and not self.starts[-1].brought:
            self.starts.pop()
        return len(self.starts) < before

    def last(self) -> Start | None:
        """The last exchange of the chat's, or of the session's where that is not known; None if there is none."""
        messages = self.session.messages
        start = next((each for each in reversed(self.starts) if each.brought), None)
        if start is not None and start.is_in(messages):
            return start
        self.starts = [each for each in self.starts if not each.brought]  # the messages are others than they were
        begins = [each.get("role") == "user" and not each.get("within") for each in messages]
        users = [at for at, begin in enumerate(begins) if begin]
        return Start(users[-1], len(messages), messages[users[-1]]) if users else None

    def last_exchange(self) -> list[Message]:
        """What was said last: the person's words, and what came of them."""
        start = self.last()
        return [] if start is None else self.session.messages[start.at : start.end]

    async def take_last(self, hub: Hub, caller: Caller) -> Taken | None:
        """Take the last exchange out, and what it was; what others have said behind it stays. None if there is none."""
        await self.refresh(hub, caller)
        if self.last() is None:
            return None
        async with self.change(hub, caller) as session:
            self.stored.session = session  # as it is now
            start = self.last()
            if start is None:
                return None
            taken = session.messages[start.at : start.end]
            session.messages = [*session.messages[: start.at], *session.messages[start.end :]]
        if start in self.starts:
            self.starts = self.starts[: self.starts.index(start)]
        return start, taken

    async def put_back(self, hub: Hub, caller: Caller, start: Start, taken: list[Message]) -> None:
        """Have an exchange that was taken out where it was."""
        async with self.change(hub, caller) as session:
            at = min(start.at, len(session.messages))
            session.messages = [*session.messages[:at], *taken, *session.messages[at:]]
        self.drop_vain()
        start.at, start.end = at, at + len(taken)
        self.starts.append(start)
