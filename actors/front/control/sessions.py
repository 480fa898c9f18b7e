"""Sessions on the control channel: runs that are turns of one, and the methods `_session/*` beside those of ACP."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import trio

from ....protocol.control.bounds import Name
from ....protocol.control.caller import LOCAL
from ....protocol.control.own import Done, Params, StartRun
from ....protocol.errors import ActorCancelled, CallboardError
from ....protocol.requests import RunRequest
from ...runs.hooks import NO_HOOKS
from ...runs.in_session import agent_of, on_stage, round_off, session_of_agent
from ...runs.sessions.names import TEMP
from ...runs.sessions.store import SessionMeta
from .method import Method

if TYPE_CHECKING:
    from ....protocol.control.caller import Caller
    from ....protocol.control.things import RunInfo
    from .hub import Hub
    from .peer import Peer

log = logging.getLogger("callboard.control")


class HubSessions:
    """Starts runs that are turns of a session; each waits for those that were asked for before."""

    def __init__(self, hub: Hub, nursery: trio.Nursery) -> None:
        self._hub = hub
        self._nursery = nursery
        self._kept: dict[str, trio.Event] = {}

    async def start(self, caller: Caller, session: str, request: RunRequest, *, title: str = "") -> RunInfo:
        """The prompt is the session's next; returns when the run that comes of it has begun.

        Args:
            session: its id, or its alias among those of the request's agent.
            request: as the hub has checked it; its target is "" for the agent whose session it is.
        """
        caller.need("write:sessions")
        begun = _Begun()
        self._nursery.start_soon(self._play, caller, session, request, title, begun)
        try:
            await begun.settled.wait()
        except trio.Cancelled:
            begun.abandoned = True
            if begun.info is not None:
                self._hub.cancel(LOCAL, begun.info.run)  # no client has its id
            elif begun.queued:
                begun.scope.cancel()
            raise
        if begun.error is not None:
            raise begun.error
        assert begun.info is not None
        return begun.info

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
        event = self._kept.get(run)
        if event is not None:
            await event.wait()

    async def _play(self, caller: Caller, session: str, request: RunRequest, title: str, begun: _Begun) -> None:
        """A turn, from the waiting for it to its being kept."""
        try:
            with begun.scope:
                await self._turn(caller, session, request, title, begun)
        except Exception as error:  # the starter gets it; after that it should not happen
            if begun.settled.is_set() and not isinstance(error, CallboardError):  # the store has told those
                log.exception("a turn of session %s ended badly", session)
            begun.error = begun.error or error
        finally:
            if begun.info is None and begun.error is None:
                begun.error = ActorCancelled("the turn was interrupted before it began")
            begun.settled.set()
            if begun.info is not None:
                self._kept.pop(begun.info.run).set()

    async def _turn(self, caller: Caller, session: str, request: RunRequest, title: str, begun: _Begun) -> None:
        hub, root = self._hub, self._hub.root
        hooks = NO_HOOKS
        agent = None
        if request.target:
            hooks = msgspec.structs.replace(hooks, loaded=await root.loader.load(request, hooks))
            assert hooks.loaded is not None
            agent = agent_of(hooks.loaded)
        async with on_stage(root, caller, session, request, hooks, agent=agent) as act:
            begun.queued = False
            playing = act.request
            rag = act.turn.session.other.get("rag")
            if isinstance(rag, str) and rag:
                playing = msgspec.structs.replace(playing, knowledge=(*playing.knowledge, rag))
            begun.info = await hub.begin(caller, playing, act.hooks, title=title, session=act.turn.stored.id)
            self._kept[begun.info.run] = trio.Event()
            if begun.abandoned:
                hub.cancel(LOCAL, begun.info.run)
            begun.settled.set()
            try:
                await hub.wait(caller, begun.info.run)
            except trio.Cancelled:
                await self._ended(begun.info.run)  # what it has said by then is kept
                raise
            await round_off(root, act)

    async def _ended(self, run: str) -> None:
        """Interrupt a run and wait for its end."""
        kernel = self._hub.root.kernel
        actor = kernel.actor.child(run)
        if actor is not None:
            actor.interrupt()
            with kernel.shield(actor.time_to_end()):
                await actor.wait_over()


class _Begun:
    """A requested turn: `queued` until it begins, `abandoned` when its client has gone."""

    def __init__(self) -> None:
        self.queued = True
        self.abandoned = False
        self.settled = trio.Event()
        self.scope = trio.CancelScope()
        self.info: RunInfo | None = None
        self.error: Exception | None = None


# --- methods -----------------------------------------------------------------------------------------------


class ListSessions(Params, frozen=True):
    """`_session/list`: of one agent, or all."""

    agent: Name | None = None


class OfSession(Params, frozen=True):
    """`_session/get`, `_session/delete`, `_session/empty`, `_session/compress`: an id, or an alias of `agent`'s."""

    session: Name
    agent: Name | None = None


class RenameSession(OfSession, frozen=True, kw_only=True):
    """`_session/rename`."""

    alias: Name


class ExportSession(OfSession, frozen=True, kw_only=True):
    """`_session/export`."""

    form: Literal["markdown", "json"] = "markdown"


class SessionList(msgspec.Struct, kw_only=True):
    """Result of `_session/list`, newest first."""

    sessions: list[SessionMeta]


class OneSession(msgspec.Struct, kw_only=True):
    """Result of `_session/get` and `_session/rename`; `messages` as in the session's file."""

    session: SessionMeta
    messages: list[dict[str, Any]] = []


class Compressed(msgspec.Struct, kw_only=True):
    """Result of `_session/compress`: False if there was too little to shorten."""

    compressed: bool


class Exported(msgspec.Struct, kw_only=True):
    """Result of `_session/export`."""

    text: str


async def _list(peer: Peer, params: ListSessions) -> SessionList:
    return SessionList(sessions=await peer.hub.root.sessions.list(peer.caller, agent=params.agent))


async def _get(peer: Peer, params: OfSession) -> OneSession:
    sessions = peer.hub.root.sessions
    stored = await sessions.get(peer.caller, params.session, agent=params.agent)
    meta = await trio.to_thread.run_sync(sessions.store.meta, stored)
    return OneSession(session=meta, messages=stored.session.messages)


async def _rename(peer: Peer, params: RenameSession) -> OneSession:
    sessions = peer.hub.root.sessions
    meta = await sessions.rename(peer.caller, params.session, params.alias, agent=params.agent)
    return OneSession(session=meta)


async def _delete(peer: Peer, params: OfSession) -> Done:
    await peer.hub.root.sessions.delete(peer.caller, params.session, agent=params.agent)
    return Done()


async def _empty(peer: Peer, params: OfSession) -> Done:
    await peer.hub.root.sessions.empty(peer.caller, params.session, agent=params.agent)
    return Done()


async def _compress(peer: Peer, params: OfSession) -> Compressed:
    done = await peer.hub.root.sessions.compress(peer.caller, params.session, agent=params.agent)
    return Compressed(compressed=done)


async def _export(peer: Peer, params: ExportSession) -> Exported:
    sessions = peer.hub.root.sessions
    return Exported(text=await sessions.export(peer.caller, params.session, agent=params.agent, form=params.form))


SESSION_METHODS = {
    "_session/list": Method(ListSessions, SessionList, _list, long=True),
    "_session/get": Method(OfSession, OneSession, _get, long=True),
    "_session/rename": Method(RenameSession, OneSession, _rename),
    "_session/delete": Method(OfSession, Done, _delete),
    "_session/empty": Method(OfSession, Done, _empty),
    "_session/compress": Method(OfSession, Compressed, _compress),
    "_session/export": Method(ExportSession, Exported, _export, long=True),
}
"""What a hub offers beside its own methods."""
