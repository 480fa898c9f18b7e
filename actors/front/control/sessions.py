"""Runs that are turns of a session."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from ....protocol.agent import Agent
from ....protocol.control.caller import LOCAL
from ....protocol.control.own import StartRun
from ....protocol.control.things import RunInfo
from ....protocol.errors import CallboardError
from ....protocol.requests import RunRequest
from ...runs.durable import Taken, on_stage_again
from ...runs.in_session import Act, RoundedOff, agent_of, in_memory, on_stage, round_off, session_of_agent
from ...runs.loading import NO_HOOKS, Hooks
from ...runs.sessions.names import TEMP

if TYPE_CHECKING:
    from ....protocol.control.caller import Caller
    from ...runs.sessions.store import Stored
    from .hub import Hub

WAIT = 30.0
"""Seconds to wait for another process that works with a session whose turn goes on."""

log = logging.getLogger("callboard.control")


@dataclass(eq=False)
class SessionTurn:
    """A turn whose run has begun.

    Attributes:
        info: its run.
        at: how many messages the session had when it began.
        added: the messages that it has brought so far.
        over: set when all that it has brought is on disk.
        rounding: cancel it to leave out what is done with the session after it, if that takes too long.
        shortening: set when a model is asked for a summary that takes the place of what was said, or else with `over`.
        rounded: what was done with the session after it.
        error: what went wrong after its run.
    """

    info: RunInfo
    at: int = 0
    added: list[dict[str, Any]] = field(default_factory=list)
    over: trio.Event = field(default_factory=trio.Event)
    rounding: trio.CancelScope = field(default_factory=trio.CancelScope)
    shortening: trio.Event = field(default_factory=trio.Event)
    rounded: RoundedOff = field(default_factory=RoundedOff)
    error: Exception | None = None


class HubSessions:
    """Starts runs that are turns of a session; each waits for those that were asked for before."""

    def __init__(self, hub: Hub, nursery: trio.Nursery) -> None:
        self._hub = hub
        self._nursery = nursery
        self._turns: dict[str, SessionTurn] = {}

    async def start(self, caller: Caller, session: str, request: RunRequest, *, title: str = "") -> RunInfo:
        """As `begin`; the run."""
        return (await self.begin(caller, session, request, title=title)).info

    async def begin(
        self,
        caller: Caller,
        session: str,
        request: RunRequest,
        hooks: Hooks = NO_HOOKS,
        *,
        title: str = "",
        keep: bool | None = None,
    ) -> SessionTurn:
        """The prompt is the session's next; returns when the run that comes of it has begun.

        Args:
            session: its id, or its alias among those of the request's agent.
            request: as the hub has checked it; its target is "" for the agent whose session it is.
            hooks: what goes beside it.
            keep: as for `on_stage`.
        """
        caller.need("write:sessions")

        async def started(act: Act, playing: RunRequest) -> RunInfo:
            return await self._hub.begin(caller, playing, act.hooks, title=title, session=act.turn.stored.id)

        return await self._begun(partial(self._play, caller, session, request, hooks, started, keep=keep))

    async def begin_in_memory(
        self, caller: Caller, stored: Stored, request: RunRequest, hooks: Hooks = NO_HOOKS, *, title: str = ""
    ) -> SessionTurn:
        """As `begin`, in a session that has no file: what is said is in `stored.session` when the turn is over."""

        async def started(act: Act, playing: RunRequest) -> RunInfo:
            return await self._hub.begin(caller, playing, act.hooks, title=title)

        return await self._begun(partial(self._play, caller, stored, request, hooks, started))

    async def begin_queued(self, caller: Caller, info: RunInfo, request: RunRequest, hooks: Hooks) -> SessionTurn:
        """As `begin`, of a run that was in a queue, as `info` has it. Other processes that work with its session are
        waited for, since that is what a session is there for: one turn after another, in whichever process."""
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
        """What `caller` wants, in the session that the agent is always run in, if there is one.

        That is for the person at this machine alone, as with `callboard run`: others would get a session
        that belongs to the first of them. A session of "" is none.
        """
        if wanted.session is not None:
            return wanted if wanted.session else msgspec.structs.replace(wanted, session=None)
        if caller.subject != LOCAL.subject or not wanted.target or not caller.has("write:sessions"):
            return wanted
        name = await session_of_agent(self._hub.root, await self._hub.request(caller, wanted))
        return wanted if name in (None, TEMP) else msgspec.structs.replace(wanted, session=name)

    async def kept(self, run: str) -> None:
        """Wait until what a run of a session has brought is on disk."""
        if run in self._turns:
            await self._turns[run].over.wait()

    async def go_on(
        self,
        info: RunInfo,
        taken: Taken,
        hooks: Hooks = NO_HOOKS,
        *,
        with_changes: bool = False,
        wait: float = WAIT,
    ) -> SessionTurn:
        """Go on with a turn that another process has begun; returns when its run has begun. Raises as `durable`."""
        return await self._begun(partial(self._play_again, info, taken, hooks, with_changes=with_changes, wait=wait))

    async def _begun(self, play: Callable[..., Awaitable[None]]) -> SessionTurn:
        turn: SessionTurn = await self._nursery.start(play)
        return turn

    async def _play(
        self,
        caller: Caller,
        session: str | Stored,
        request: RunRequest,
        hooks: Hooks,
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
            told = partial(_tell_wait, session)
            acting = on_stage(root, caller, session, request, hooks, agent=agent, keep=keep, wait=wait, on_wait=told)
            await self._turn(acting, caller, begin, task_status, session)
        else:
            acting = in_memory(root, session, request, hooks)
            await self._turn(acting, caller, begin, task_status, "(in memory)")

    async def _play_again(
        self,
        info: RunInfo,
        taken: Taken,
        hooks: Hooks,
        *,
        with_changes: bool,
        wait: float,
        task_status: trio.TaskStatus[SessionTurn],
    ) -> None:
        async def begin(act: Act) -> RunInfo:
            running, history = self._hub.running, act.request.history
            await running.go_on(info, taken, act.hooks, history, with_changes=with_changes)
            return running.live[info.run].info

        acting = on_stage_again(self._hub.root, taken, hooks, wait=wait, on_wait=partial(_tell_wait, str(info.session)))
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
                task_status.started(turn)
                try:
                    await hub.wait(caller, info.run)
                except trio.Cancelled:
                    await self._ended(info.run)  # what it has said by then is kept
                    raise
                act.turn.spend(turn.info.cost)
                with turn.rounding:
                    turn.rounded = await round_off(root, act, before_shortening=turn.shortening.set)
        except Exception as error:  # a turn that ends badly must not end the hub
            if turn is None:  # for the client that asked for the turn
                raise
            if not isinstance(error, CallboardError):  # the store has logged those
                log.exception("a turn of session %s ended badly", session)
            turn.error = error
        finally:
            if turn is not None:
                turn.over.set()
                turn.shortening.set()
                del self._turns[turn.info.run]

    async def _ended(self, run: str) -> None:
        kernel = self._hub.root.kernel
        actor = kernel.actor.child(run)
        if actor is not None:
            actor.interrupt()
            with kernel.shield(actor.time_to_end()):
                await actor.wait_over()


def _tell_wait(session: str, error: CallboardError) -> None:
    log.info("a turn of session %s waits: %s", session, error)
