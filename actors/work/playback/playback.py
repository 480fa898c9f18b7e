"""What may stand between a run and the world: a record that is written, or one that is played.

    result = await done(me, Effect("script", "first.sh", state), Completed, lambda: run_process(me, argv))

Effects are what is not the same every time: replies of models, results of tools and processes, what servers offer. What
a run finds out by itself and would find out differently (ids, the time) is a `value`.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypeVar

import msgspec

from ....protocol.chat import ChatReply, ChatRequest, Delta

if TYPE_CHECKING:
    from ....protocol.chat import TokenUsage
    from ....protocol.errors import CallboardError
    from ....protocol.events import UsageUpdate
    from ....protocol.kernel.questions import Answer, Question
    from ....protocol.settings import Settings
    from ....supervisors import Actor
    from ....supervisors.escalation import Verdict
    from ..spending.accounts import Account

T = TypeVar("T")

EffectKind: TypeAlias = Literal[
    "tool",
    "script",
    "code",
    "node",
    "condition",
    "processor",
    "memory",
    "memory written",
    "retrieval",
    "knowledge",
    "attachments",
    "server tools",
    "server tools now",
    "instructions",
    "files",
    "hook",
]


PLAYED = "played"
"""The value that says how long a run has been played, in seconds."""


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """The value `PREVIEW`: what a call would change, found out before a person is asked to allow it.

    Attributes:
        diff: for the person; "" if there is none.
        trouble: why the call fails whatever the person says; "" if it may succeed.
    """

    diff: str = ""
    trouble: str = ""


PREVIEW = "preview"


class Effect(msgspec.Struct, frozen=True):
    """Something that a run has done, or asks, outside of itself.

    Attributes:
        kind: see above.
        name: of the tool, the script, the server, the node, the edge; of a memory with the stage.
        request: what it is given, as JSON values.
    """

    kind: EffectKind
    name: str
    request: Any = None


class Asking(msgspec.Struct, frozen=True, kw_only=True):
    """How a model is asked.

    Attributes:
        hears: told the pieces of the reply; None if nobody wants them.
        count: counts a reply; its result is told.
        account: what is charged for it; None where nothing is limited.
    """

    hears: Callable[[Delta], None] | None
    count: Callable[[str, TokenUsage, float | None], UsageUpdate]
    account: Account | None


class Beginning(msgspec.Struct, frozen=True, kw_only=True):
    """How a run begins.

    Attributes:
        run: its id; target, prompt: what was asked for.
        model: the default one, or "".
        cwd: the directory that it works in; config_dir: where agents live.
        directory: of its agent, if that has one.
    """

    run: str
    target: str
    prompt: str
    model: str
    cwd: Path
    config_dir: Path
    directory: Path | None


class Playback(Protocol):
    """See the module.

    Attributes:
        asks_the_world: it writes a record, so models, servers and weights have to be there.
        model: the default one, where the world is not asked; "" if it does not know.
        broken: why the run could not be played on; it fails then.
        left: what the record has and the run has not asked for, in words.
    """

    @property
    def asks_the_world(self) -> bool:
        """See above."""

    @property
    def model(self) -> str:
        """See above."""

    @property
    def broken(self) -> CallboardError | None:
        """See above."""

    @property
    def left(self) -> str:
        """See above."""

    def begins(self, actor: Actor, beginning: Beginning) -> None:
        """This is the actor of the run."""

    def policy(self, question: Question) -> Answer | Verdict:
        """Answers a question of the run, as the policy of its actor."""

    def answered(self, actor: Actor, question: Question, answer: Answer) -> None:
        """A question of the run was answered."""

    def unanswered(self, actor: Actor, question: Question, reason: str) -> None:
        """It was closed without an answer."""

    async def over(self, status: str, settings: Settings) -> None:
        """The run has ended so."""

    async def chat(
        self, me: Actor, request: ChatRequest, asking: Asking, live: Callable[[], Awaitable[ChatReply]]
    ) -> ChatReply:
        """A model's reply."""

    async def done(self, me: Actor, effect: Effect, kind: type[T], live: Callable[[], Awaitable[T]]) -> T:
        """What an effect came to, as a value of this type; what it failed with is raised."""

    async def in_turn(self, me: Actor) -> None:
        """The work of this actor has come to an end by itself: wait until it may be told."""

    def value(self, me: Actor | None, name: str, kind: type[T], find: Callable[[], T]) -> T:
        """What a run finds out by itself; `me` is None for what it does before it has an actor."""

    def window(self, model: str, find: Callable[[], int | None]) -> int | None:
        """Tokens that a model takes in; None if that is not known."""


playback: ContextVar[Playback | None] = ContextVar("callboard_playback", default=None)
"""That of the run that we are in."""


def in_the_world() -> bool:
    """Whether what is to be done is done, and does not come from a record."""
    playing = playback.get()
    return playing is None or playing.asks_the_world


async def done(me: Actor, effect: Effect, kind: type[T], live: Callable[[], Awaitable[T]]) -> T:
    """As `Playback.done`; where there is none, it is done."""
    playing = playback.get()
    return await live() if playing is None else await playing.done(me, effect, kind, live)


async def in_turn(me: Actor) -> None:
    """As `Playback.in_turn`; where there is none, at once."""
    playing = playback.get()
    if playing is not None:
        await playing.in_turn(me)


async def whole(me: Actor, effect: Effect, kind: type[T], live: Callable[[], Awaitable[T]]) -> T:
    """As `done`, and all that happens in it is a part of it, and no effect of its own."""

    async def apart() -> T:
        token = playback.set(None)
        try:
            return await live()
        finally:
            playback.reset(token)

    playing = playback.get()
    return await live() if playing is None else await playing.done(me, effect, kind, apart)


def value(me: Actor | None, name: str, kind: type[T], find: Callable[[], T]) -> T:
    """As `Playback.value`; where there is none, it is found out."""
    playing = playback.get()
    return find() if playing is None else playing.value(me, name, kind, find)


def token(me: Actor) -> str:
    """Eight random hex digits."""
    return value(me, "token", str, partial(secrets.token_hex, 4))


def now(me: Actor | None) -> datetime:
    """What time it is."""
    return value(me, "now", datetime, partial(datetime.now, UTC))
