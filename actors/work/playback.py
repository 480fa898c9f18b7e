"""Playback: the results of a run's models, tools, scripts and servers come from a record instead of the outside world.

    result = await done(me, OutsideEffect("script", "first.sh", state), Completed, lambda: run_process(me, argv))

Code with an effect on the outside world calls `done` first. An effect is a result that may differ each time: replies of
models, results of tools and processes, tool lists of servers. A `value` is something that a run determines by itself
and that would differ in a replay (ids, the time). `RecordedReply` delivers a recorded reply of a model, with its
events, its usage, and the limits of the run.

A run without playback only pays for the lookup of a context variable. `runs/rerun` implements `Playback` for cassettes
and for replays. May import `protocol`, `supervisors`, and `models.codec` and `spending` of this layer.
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
import trio

from ...protocol.chat import ChatReply, ChatRequest, Delta, ReasoningDelta, TextDelta
from ...protocol.errors import CallboardError
from ...protocol.events import LlmDelta, LlmFailed, LlmReasoning, LlmRequest, LlmResponse, split_text
from .models.codec import check_reply
from .spending.accounts import Amount

if TYPE_CHECKING:
    from ...protocol.chat import TokenUsage
    from ...protocol.events import UsageUpdate
    from ...protocol.kernel.questions import Answer, Question
    from ...protocol.settings import Settings
    from ...supervisors import Actor
    from ...supervisors.escalation import Verdict
    from .spending.accounts import Account


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
"""Name of the value for the seconds that a run has been executing."""


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """Preview of a call's change, computed before the approval question; the value `PREVIEW`.

    Attributes:
        diff: for the user; "" if there is none.
        trouble: why the call would fail even with approval; "" if it may succeed.
    """

    diff: str = ""
    trouble: str = ""


PREVIEW = "preview"


class OutsideEffect(msgspec.Struct, frozen=True):
    """An action or a request of a run outside of itself.

    Attributes:
        kind: the kind of effect, see `EffectKind`.
        name: name of the tool, script, server, node or edge; for a memory, with the stage.
        request: its input, as JSON values.
    """

    kind: EffectKind
    name: str
    request: Any = None


class Asking(msgspec.Struct, frozen=True, kw_only=True):
    """Context of a request to a model.

    Attributes:
        hears: called with the pieces of the reply; None if no caller wants them.
        count: counts a reply and returns the usage event to emit.
        account: charged for the reply; None without limits.
    """

    hears: Callable[[Delta], None] | None
    count: Callable[[str, TokenUsage, float | None], UsageUpdate]
    account: Account | None


class Beginning(msgspec.Struct, frozen=True, kw_only=True):
    """Initial facts of a run.

    Attributes:
        run: its id.
        target, prompt: the request.
        model: the default model, or "".
        cwd: the working directory.
        config_dir: contains the agents.
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
    """Recorder or replay of one run.

    Attributes:
        asks_the_world: True for a recorder, so models, servers and weights must be available.
        model: the default model of a replay; "" if unknown.
        broken: why a replay could not continue; the run then fails.
        unused: recorded results that the run did not request, in words.
    """

    @property
    def asks_the_world(self) -> bool:
        """True if effects are executed, and models, servers and weights must be available."""

    @property
    def model(self) -> str:
        """The default model of a replay; "" if unknown."""

    @property
    def broken(self) -> CallboardError | None:
        """The error because of which the replay could not continue; None if there is none."""

    @property
    def unused(self) -> str:
        """Recorded results that the run did not request, in words."""

    def begins(self, actor: Actor, beginning: Beginning) -> None:
        """Register the actor of the run."""

    def policy(self, question: Question) -> Answer | Verdict:
        """Answer a question of the run, as the policy of its actor."""

    def answered(self, actor: Actor, question: Question, answer: Answer) -> None:
        """Record the answer to a question of the run."""

    def unanswered(self, actor: Actor, question: Question, reason: str) -> None:
        """Record that a question was closed without an answer."""

    async def over(self, status: str, settings: Settings) -> None:
        """Record the end of the run with its status."""

    async def chat(
        self, me: Actor, request: ChatRequest, asking: Asking, live: Callable[[], Awaitable[ChatReply]]
    ) -> ChatReply:
        """Return a model's reply, from the record or by `live`."""

    async def done(self, me: Actor, effect: OutsideEffect, kind: type[T], live: Callable[[], Awaitable[T]]) -> T:
        """Return the result of an effect as a value of this type. Raises the recorded failure of a failed effect."""

    async def in_turn(self, me: Actor) -> None:
        """Wait until this actor's end may be delivered, in the recorded order."""

    def value(self, me: Actor | None, name: str, kind: type[T], find: Callable[[], T]) -> T:
        """Return a value that a run determines by itself.

        `me` is None for a value that is needed before the run's actor exists.
        """

    def window(self, model: str, find: Callable[[], int | None]) -> int | None:
        """Return the tokens of a model's window; None if unknown."""


# A context variable, because effects occur deep in code that has no reference to the run.
playback: ContextVar[Playback | None] = ContextVar("callboard_playback", default=None)
"""Playback of the current run; None in a normal run."""


def in_the_world() -> bool:
    """Return True if effects are executed, and not taken from a record."""
    playing = playback.get()
    # A recorder executes everything too: only a replay does without the outside world.
    return playing is None or playing.asks_the_world


async def done(me: Actor, effect: OutsideEffect, kind: type[T], live: Callable[[], Awaitable[T]]) -> T:
    """Return the result of an effect by `Playback.done`; without playback, execute it."""
    playing = playback.get()
    return await live() if playing is None else await playing.done(me, effect, kind, live)


async def in_turn(me: Actor) -> None:
    """Wait by `Playback.in_turn`; without playback, return at once."""
    playing = playback.get()
    if playing is not None:
        await playing.in_turn(me)


async def whole(me: Actor, effect: OutsideEffect, kind: type[T], live: Callable[[], Awaitable[T]]) -> T:
    """Return the result of an effect like `done`; effects inside of it count as parts of it and are not recorded
    themselves.
    """

    # Hide the playback inside: otherwise inner effects would be recorded too, and no replay requests them.
    async def apart() -> T:
        token = playback.set(None)
        try:
            return await live()
        finally:
            playback.reset(token)

    playing = playback.get()
    return await live() if playing is None else await playing.done(me, effect, kind, apart)


def value(me: Actor | None, name: str, kind: type[T], find: Callable[[], T]) -> T:
    """Return a value by `Playback.value`; without playback, compute it."""
    playing = playback.get()
    return find() if playing is None else playing.value(me, name, kind, find)


def token(me: Actor) -> str:
    """Return eight random hex digits; in a replay, the recorded ones."""
    return value(me, "token", str, partial(secrets.token_hex, 4))


def now(me: Actor | None) -> datetime:
    """Return the current time in UTC; in a replay, the recorded time."""
    return value(me, "now", datetime, partial(datetime.now, UTC))


# --- recorded replies of models


class RecordedReply:
    """A model request that is answered from a record.

    Args:
        id: of its events.
        model: the requested model.
    """

    def __init__(self, me: Actor, id: str, model: str, request: ChatRequest, asking: Asking) -> None:
        self._me = me
        self._id = id
        self._model = model
        self._request = request
        self._asking = asking
        self._began = 0.0

    def asked(self) -> None:
        """Emit the event of the request."""
        request, self._began = self._request, trio.current_time()
        self._me.emit(
            LlmRequest(
                model=self._model,
                messages=len(request.messages) + bool(request.system),
                tools=[tool.name for tool in request.tools],
                stream=self._asking.hears is not None,
            ),
            id=self._id,
        )

    def emit_text(self, text: str, reasoning: str = "") -> None:
        """Emit the reply's reasoning and text, each as one delta to `Asking.hears`; nothing if that is None."""
        hears = self._asking.hears
        # The caller did not ask for a stream, so no deltas are emitted.
        if hears is None:
            return
        if reasoning:
            for piece in split_text(reasoning):
                self._me.emit(LlmReasoning(text=piece), id=self._id)
            hears(ReasoningDelta(reasoning))
        if text:
            for piece in split_text(text):
                self._me.emit(LlmDelta(text=piece), id=self._id)
            hears(TextDelta(text))

    def answered(self, reply: ChatReply, seconds: float | None = None) -> ChatReply:
        """Emit the events of a reply, count and charge it, and return it.

        Args:
            seconds: duration in the event; None for the time since `asked`.

        Raises:
            ModelError: the reply is invalid, see `check_reply`.
        """
        me, usage = self._me, reply.usage
        self.emit_text(reply.text, reply.reasoning)
        me.emit(
            LlmResponse(
                model=reply.model,
                seconds=trio.current_time() - self._began if seconds is None else seconds,
                input_tokens=usage.input_tokens,
                output_tokens=usage.output_tokens,
                stop=reply.stop,
                cached_tokens=usage.cached_tokens,
                cache_write_tokens=usage.cache_write_tokens,
                reasoning_tokens=usage.reasoning_tokens,
            ),
            id=self._id,
        )
        me.emit(self._asking.count(reply.model, usage, reply.cost), id=self._id)
        if self._asking.account is not None:
            # A replay must reach the same limits as the recorded run.
            self._asking.account.charge(Amount(usage.input_tokens + usage.output_tokens, reply.cost or 0.0), 1)
        # After the events and the charge, in the order of a real request: an invalid reply was paid for as well.
        check_reply(reply)
        return reply

    def failed(self, error: CallboardError) -> CallboardError:
        """Emit the event of a failed request and return the error."""
        self._me.emit(LlmFailed(model=self._model, error=str(error), code=error.code), id=self._id)
        return error
