"""Runs that are turns of a session.

A turn holds the session's lock from before its run until the messages are stored. So turns of one session follow one
another, and each sees the messages of the previous one. The turn's task belongs to the hub: `begin` returns when the
run has begun, and the rest of the turn continues in the background.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import trio

from ....protocol.agent import Agent
from ....protocol.control.caller import LOCAL
from ....protocol.control.method_structs import StartRun
from ....protocol.control.resources import RunInfo
from ....protocol.errors import CallboardError
from ....protocol.requests import RunRequest
from ...runs.durable import TakenRun, resumed_turn
from ...runs.loading import NO_HOOKS, RunCallbacks, session_of_agent
from ...runs.session_run import Act, RoundedOff, agent_of, in_memory, round_off, turn_in_session
from ...runs.sessions.names import TEMP

if TYPE_CHECKING:
    from ....protocol.control.caller import Caller
    from ....protocol.outcome import Outcome
    from ...runs.root import Root
    from ...runs.sessions.store import Stored
    from .runs.running import Running

WAIT = 30.0
"""Seconds that a resumed turn waits for another process that holds the session's lock."""

log = logging.getLogger("callboard.control")


@dataclass(eq=False)
class SessionTurn:
    """Turn whose run has begun.

    Attributes:
        info: summary of its run.
        at: number of messages in the session when the turn began.
        added: messages that the turn has added so far.
        over: set when all its messages are on disk.
        rounding: cancel it to skip the work on the session after the turn, if that takes too long.
        shortening: set when a model starts to summarise old messages, or else together with `over`.
        rounded: result of the work on the session after the turn.
        error: error after the end of the run.
    """

    info: RunInfo
    at: int = 0
    added: list[dict[str, Any]] = field(default_factory=list)
    over: trio.Event = field(default_factory=trio.Event)
    rounding: trio.CancelScope = field(default_factory=trio.CancelScope)
    shortening: trio.Event = field(default_factory=trio.Event)
    rounded: RoundedOff = field(default_factory=RoundedOff)
    error: Exception | None = None


class TurnRunner(Protocol):
    """Part of the hub that turns use: their runs begin and end like all others."""

    root: Root
    running: Running

    def get(self, caller: Caller, run: str) -> RunInfo: ...

    def hooks(self, caller: Caller, hooks: RunCallbacks = ...) -> RunCallbacks: ...

    async def request(self, caller: Caller, wanted: StartRun) -> RunRequest: ...

    async def begin(
        self,
        caller: Caller,
        request: RunRequest,
        hooks: RunCallbacks = ...,
        *,
        title: str = ...,
        session: str | None = ...,
    ) -> RunInfo: ...

    async def wait(self, caller: Caller, run: str) -> Outcome: ...


class HubSessions:
    """Starts and resumes runs that are turns of a session, one after another per session.

    Attributes:
        nursery: nursery for the turns; the hub sets it when it opens.
    """

    def __init__(self, hub: TurnRunner) -> None:
        self._hub = hub
        self.nursery: trio.Nursery
        self._turns: dict[str, SessionTurn] = {}

    async def start(self, caller: Caller, session: str, request: RunRequest, *, title: str = "") -> RunInfo:
        """Start a turn like `begin` and return its run."""
        return (await self.begin(caller, session, request, title=title)).info

    async def begin(
        self,
        caller: Caller,
        session: str,
        request: RunRequest,
        hooks: RunCallbacks = NO_HOOKS,
        *,
        title: str = "",
        keep: bool | None = None,
    ) -> SessionTurn:
        """Start a turn with the request's prompt; returns when its run has begun.

        Args:
            session: id of the session, or its alias among the sessions of the request's agent.
            request: request checked by the hub; its target is "" for the session's own agent.
            hooks: callbacks of the run.
            keep: as for `turn_in_session`.
        """
        caller.need("write:sessions")

        async def started(act: Act, playing: RunRequest) -> RunInfo:
            return await self._hub.begin(caller, playing, act.hooks, title=title, session=act.turn.stored.id)

        return await self._begun(partial(self._play, caller, session, request, hooks, started, keep=keep))

    async def begin_in_memory(
        self, caller: Caller, stored: Stored, request: RunRequest, hooks: RunCallbacks = NO_HOOKS, *, title: str = ""
    ) -> SessionTurn:
        """Start a turn like `begin`, in a session without a file: at its end, `stored.session` has the messages."""

        async def started(act: Act, playing: RunRequest) -> RunInfo:
            return await self._hub.begin(caller, playing, act.hooks, title=title)

        return await self._begun(partial(self._play, caller, stored, request, hooks, started))

    async def begin_queued(
        self, caller: Caller, info: RunInfo, request: RunRequest, hooks: RunCallbacks
    ) -> SessionTurn:
        """Start the turn of a run from a queue, described by `info`.

        Waits without limit while another process works with the session: a session's turns are sequential across all
        processes.
        """
        running, session = self._hub.running, info.session
        assert session is not None

        async def started(act: Act, playing: RunRequest) -> RunInfo:
            if info.run in act.turn.session.meta.runs:
                # A worker that was stopped before the run's first row was stored wrote the turn when it woke, and held
                # the session's lock until then. Written here too, the turn would be in the session twice.
                act.turn.keeps = False
            of = msgspec.structs.replace(info, session=act.turn.stored.id)
            return self._hub.get(caller, await running.start(of, playing, act.hooks))

        return await self._begun(partial(self._play, caller, session, request, hooks, started, wait=math.inf))

    async def placed(self, caller: Caller, wanted: StartRun) -> StartRun:
        """Return `wanted` with the session that its agent always runs in, if the agent names one.

        This applies only to the user of this machine, as with `callboard run`. Other callers would share a session
        that belongs to the first of them. A session of "" means none.
        """
        if wanted.session is not None:
            return wanted if wanted.session else msgspec.structs.replace(wanted, session=None)
        if caller.subject != LOCAL.subject or not wanted.target or not caller.has("write:sessions"):
            return wanted
        name = await session_of_agent(
            self._hub.root.loader, self._hub.root.settings, await self._hub.request(caller, wanted)
        )
        return wanted if name in (None, TEMP) else msgspec.structs.replace(wanted, session=name)

    async def wait_stored(self, run: str) -> None:
        """Wait until the messages of a run's turn are on disk; return at once if the run is no turn under way."""
        if run in self._turns:
            await self._turns[run].over.wait()

    async def resume(
        self,
        info: RunInfo,
        taken: TakenRun,
        hooks: RunCallbacks = NO_HOOKS,
        *,
        with_changes: bool = False,
        wait: float = WAIT,
    ) -> SessionTurn:
        """Resume a turn of an earlier process; returns when its run has begun. Raises like `runs.durable.play`."""
        return await self._begun(partial(self._play_again, info, taken, hooks, with_changes=with_changes, wait=wait))

    async def _begun(self, play: Callable[..., Awaitable[None]]) -> SessionTurn:
        turn: SessionTurn = await self.nursery.start(play)
        return turn

    async def _play(
        self,
        caller: Caller,
        session: str | Stored,
        request: RunRequest,
        hooks: RunCallbacks,
        started: Callable[[Act, RunRequest], Awaitable[RunInfo]],
        *,
        keep: bool | None = None,
        wait: float = 0.0,
        task_status: trio.TaskStatus[SessionTurn],
    ) -> None:
        root = self._hub.root
        hooks, agent = self._hub.hooks(caller, hooks), None

        async def begin(act: Act) -> RunInfo:
            playing = act.request
            rag = act.turn.session.other.get("rag")
            if isinstance(rag, str) and rag and rag not in playing.knowledge:
                playing = msgspec.structs.replace(playing, knowledge=(*playing.knowledge, rag))
            return await started(act, playing)

        if request.target and not isinstance(request.target, Agent):
            loaded = await root.loader.load(request, hooks)
            hooks, agent = msgspec.structs.replace(hooks, loaded=loaded), agent_of(loaded)
        if isinstance(session, str):
            told = partial(_log_wait, session)
            acting = turn_in_session(
                root, caller, session, request, hooks, agent=agent, keep=keep, wait=wait, on_wait=told
            )
            await self._turn(acting, caller, begin, task_status, session)
        else:
            acting = in_memory(root, session, request, hooks)
            await self._turn(acting, caller, begin, task_status, "(in memory)")

    async def _play_again(
        self,
        info: RunInfo,
        taken: TakenRun,
        hooks: RunCallbacks,
        *,
        with_changes: bool,
        wait: float,
        task_status: trio.TaskStatus[SessionTurn],
    ) -> None:
        async def begin(act: Act) -> RunInfo:
            running, history = self._hub.running, act.request.history
            await running.resume(info, taken, act.hooks, history, with_changes=with_changes)
            return running.live[info.run].info

        acting = resumed_turn(self._hub.root, taken, hooks, wait=wait, on_wait=partial(_log_wait, str(info.session)))
        await self._turn(acting, LOCAL, begin, task_status, str(info.session))

    async def _turn(
        self,
        acting: AbstractAsyncContextManager[Act],
        caller: Caller,
        begin: Callable[[Act], Awaitable[RunInfo]],
        task_status: trio.TaskStatus[SessionTurn],
        session: str,
    ) -> None:
        hub, root = self._hub, self._hub.root
        turn: SessionTurn | None = None
        try:
            async with acting as act:
                at = len(act.turn.session.messages)
                info = await begin(act)
                turn = self._turns[info.run] = SessionTurn(info, at, act.turn.added)
                # From here on, `begin` has returned, and errors go into `turn.error`.
                task_status.started(turn)
                try:
                    await hub.wait(caller, info.run)
                except trio.Cancelled:
                    await self._ended(info.run)  # wait for the end: the messages up to the cancellation are stored
                    raise
                act.turn.spend(turn.info.cost)
                with turn.rounding:
                    turn.rounded = await round_off(root, act, before_shortening=turn.shortening.set)
        except Exception as error:  # a failed turn must not end the hub
            if turn is None:  # the caller of `begin` gets the error
                raise
            if not isinstance(error, CallboardError):  # the store has logged those
                log.exception("a turn of session %s failed", session)
            turn.error = error
        finally:
            if turn is not None:
                turn.over.set()
                turn.shortening.set()
                # After `over`: those that wait in `wait_stored` hold the turn itself.
                del self._turns[turn.info.run]

    async def _ended(self, run: str) -> None:
        kernel = self._hub.root.kernel
        actor = kernel.actor.child(run)
        if actor is not None:
            actor.interrupt()
            with kernel.shield(actor.time_to_end()):
                await actor.wait_over()


def _log_wait(session: str, error: CallboardError) -> None:
    log.info("a turn of session %s waits: %s", session, error)
