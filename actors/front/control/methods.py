"""What a client may call: our own methods, by name, with the structs of their parameters.

docs/control.md has each of them with an example.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import trio

from ....protocol.control import durable, own, schema
from ....protocol.control.bounds import Name
from ....protocol.control.own import Done, Params
from ....protocol.control.things import QuestionAsked
from ....protocol.errors import Denied, NotFound, UsageError
from ....protocol.version import VERSION
from ...runs.sessions.live import Sessions
from ...runs.sessions.store import SessionMeta
from .actors import memory_of_process
from .calls import call_of, calls_of
from .changes import changes_of_run, restore_run
from .forking import fork_run, steps_of_run
from .open_questions import FeedLagged
from .pages import page_of_events
from .peer import Follow, Method, Peer
from .requests import check_role
from .rows import rows_of
from .subscription import Lagged, Subscription
from .usage import usage_of

if TYPE_CHECKING:
    from ....protocol.control.things import ActorInfo
    from .actors import TreeWatch
    from .cluster import Cluster

MOST_EVENTS = MOST_RUNS = 1000
"""Of one page."""

SETTLES_WITHIN = 2.0
"""Seconds in which actors elsewhere are heard of again that were there when a client began to watch."""

AGAIN_AFTER = 1.0
"""The retry time, in seconds, for a reader of an unreadable log."""

log = logging.getLogger("callboard.control")


# --- runs --------------------------------------------------------------------------------------------------


async def _start(peer: Peer, params: own.StartRun) -> Any:
    return await peer.hub.start(peer.caller, await peer.hub.sessions.placed(peer.caller, params))


def _list(peer: Peer, params: own.ListRuns) -> own.Runs:
    _check_limit(params.limit, MOST_RUNS)
    runs, next = peer.hub.page(peer.caller, status=params.status, limit=params.limit, before=params.before)
    return own.Runs(runs=runs, next=next)


def _check_limit(limit: int, most: int) -> None:
    if not 1 <= limit <= most:
        raise UsageError(f"`limit` is a number from 1 to {most}, not {limit}")


def _subscribe(peer: Peer, params: own.Subscribe) -> Follow:
    events = peer.hub.subscribe(peer.caller, params.run, params.after)
    seq = peer.hub.get(peer.caller, params.run).seq
    id = peer.new_subscription()
    return Follow(own.Subscribed(subscription=id, seq=seq), partial(_tell_events, peer, id, events), id)


async def _tell_events(peer: Peer, id: str, events: Subscription) -> None:
    head = {"jsonrpc": "2.0", "method": "_run/event", "params": {"subscription": id, "run": events.run}}
    opening = msgspec.json.encode(head)[:-2] + b',"event":'
    told: tuple[int, int] | None = None
    try:
        while True:
            async with peer.turn if events.reads_log else contextlib.nullcontext():
                several = await events.batch()
                if events.lost != told and events.lost is not None:
                    told = events.lost
                    lost = own.RunLost(subscription=id, run=events.run, first=told[0], last=told[1])
                    await peer.notify("_run/lost", lost)
                if not several:
                    break
                for event in several:
                    await peer.room()
                    await peer.send(opening + event.data + b"}}")
                    events.seq = event.seq
    except (Lagged, OSError) as error:
        if isinstance(error, OSError):  # too many open files, perhaps: the client may try again, but not at once
            log.warning("the log of %s can't be read: %s", events.run, error)
            await trio.sleep(AGAIN_AFTER)
        behind = own.RunLagged(subscription=id, run=events.run, after=events.seq, seq=events.info.seq)
        await peer.notify("_run/lagged", behind)
        return
    await peer.notify("_run/ended", own.RunEnded(subscription=id, run=events.run, status=events.info.status))


async def _events(peer: Peer, params: own.ReadEvents) -> own.Events:
    _check_limit(params.limit, MOST_EVENTS)
    if params.after < 0:
        raise UsageError(f"`after` is the number of an event, 0 for before the first, not {params.after}")
    return await page_of_events(peer.hub, peer.caller, params.run, params.after, params.limit)


async def _rows(peer: Peer, params: durable.ReadRows) -> durable.Rows:
    _check_limit(params.limit, MOST_EVENTS)
    return await rows_of(peer.hub, peer.caller, params.run, params.after, params.limit)


async def _steps(peer: Peer, params: durable.ReadSteps) -> durable.Steps:
    _check_limit(params.limit, MOST_EVENTS)
    return await steps_of_run(peer.hub, peer.caller, params.run, params.after, params.limit)


# --- actors ------------------------------------------------------------------------------------------------


async def _tree(peer: Peer, params: own.TreeOf) -> own.Actors:
    await peer.hub.actors.measure(peer.caller, params.run)
    actors = peer.hub.actors.tree(peer.caller, params.run)
    if (cluster := _elsewhere(peer, params.run)) is not None:
        actors += _shown(peer, await cluster.actors(params.run))
    return own.Actors(actors=actors, memory=memory_of_process())


def _elsewhere(peer: Peer, run: str | None) -> Cluster | None:
    """The cluster, if it has actors of the run, or of all, that this process does not play."""
    cluster = peer.hub.cluster
    return cluster if cluster is not None and cluster.shows_actors(run) else None


def _shown(peer: Peer, actors: list[ActorInfo]) -> list[ActorInfo]:
    """Those of runs that the caller may see."""
    known: dict[str, bool] = {}
    for run in {actor.run for actor in actors}:
        try:
            known[run] = bool(peer.hub.get(peer.caller, run))
        except (NotFound, Denied):
            known[run] = False
    return [actor for actor in actors if known[actor.run]]


async def _watch_tree(peer: Peer, params: own.WatchTree) -> Follow:
    watch = peer.hub.actors.watch_tree(peer.caller, params.run, params.interval)
    await peer.hub.actors.measure(peer.caller, params.run)
    cluster = _elsewhere(peer, params.run)
    others = [] if cluster is None else _shown(peer, await cluster.actors(params.run))
    id = peer.new_subscription()
    watch.__enter__()  # from here on nothing is missed
    actors = peer.hub.actors.tree(peer.caller, params.run)
    result = own.WatchingTree(subscription=id, actors=actors + others, memory=memory_of_process())
    body = partial(_tell_changes, peer, id, watch)
    if cluster is not None:
        body = partial(_tell_all_changes, peer, id, watch, cluster, params, others)
    return Follow(result, body, id, watch.__exit__)


async def _tell_all_changes(
    peer: Peer,
    id: str,
    watch: TreeWatch,
    cluster: Cluster,
    params: own.WatchTree,
    before: list[ActorInfo],
) -> None:
    """As `_tell_changes`, those of others as well; of the ones from `before` it is told if they are there no more."""
    stale = {actor.path for actor in before}

    async def take(changed: list[ActorInfo], gone: list[str]) -> None:
        shown = _shown(peer, changed)
        stale.difference_update(actor.path for actor in shown)
        told = own.ActorsChanged(subscription=id, changed=shown, gone=gone, memory=memory_of_process())
        await peer.notify("_actor/changed", told)
        await peer.room()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(_tell_changes, peer, id, watch)
        nursery.start_soon(cluster.watch_actors, params.run, params.interval, take)
        await trio.sleep(SETTLES_WITHIN)
        if stale:
            await take([], sorted(stale))


async def _tell_changes(peer: Peer, id: str, watch: TreeWatch) -> None:
    async for change in watch:
        memory = memory_of_process()
        told = own.ActorsChanged(subscription=id, changed=change.changed, gone=change.gone, memory=memory)
        await peer.notify("_actor/changed", told)
        await peer.room()  # before the next change is made


# --- questions ---------------------------------------------------------------------------------------------


def _watch_questions(peer: Peer, _: own.Nothing) -> Follow:
    id = peer.new_subscription()
    return Follow(own.Watching(subscription=id), partial(_tell_questions, peer, id), id)


async def _tell_questions(peer: Peer, id: str) -> None:
    try:
        with peer.hub.watch_questions(peer.caller) as feed:
            async for news in feed:
                await peer.room()
                if isinstance(news, QuestionAsked):
                    await peer.notify("_question/asked", own.Asked(subscription=id, question=news.question))
                else:
                    closed = own.Closed(subscription=id, question=news.question, by=news.by)
                    await peer.notify("_question/closed", closed)
    except FeedLagged:
        await peer.notify("_question/lagged", own.QuestionsLagged(subscription=id))


# --- the server --------------------------------------------------------------------------------------------


def _server_info(peer: Peer, _: own.Nothing) -> own.ServerInfo:
    return own.ServerInfo(
        name="callboard",
        version=VERSION,
        subject=peer.caller.subject,
        scopes=sorted(peer.caller.scopes),
        protocol=own.VERSION,
        runs=peer.hub.under_way,
        uptime=trio.current_time() - peer.hub.since,
    )


_CALLS: dict[str, Callable[[Peer, Any], Any]] = {
    "_run/start": _start,
    "_run/list": _list,
    "_run/get": lambda peer, params: peer.hub.look(peer.caller, params.run),
    "_run/cancel": lambda peer, params: peer.hub.cancel(peer.caller, params.run),
    "_run/resume": lambda peer, given: peer.hub.resume(peer.caller, given.run, with_changes=given.with_changes),
    "_run/rows": _rows,
    "_run/steps": _steps,
    "_run/fork": lambda peer, given: fork_run(peer.hub, peer.caller, given),
    "_run/delete": lambda peer, params: peer.hub.delete(peer.caller, params.run),
    "_run/subscribe": _subscribe,
    "_run/unsubscribe": lambda peer, params: peer.unsubscribe(params.subscription),
    "_run/events": _events,
    "_run/graph": lambda peer, params: trio.to_thread.run_sync(peer.hub.graph_of, peer.caller, params.run),
    "_run/calls": lambda peer, given: calls_of(
        peer.hub, peer.caller, given.run, after=given.after, limit=given.limit, actor=given.actor
    ),
    "_run/call": lambda peer, given: call_of(peer.hub, peer.caller, given.run, given.number),
    "_run/changes": lambda peer, params: changes_of_run(peer.hub, peer.caller, params.run, params.actor),
    "_run/restore": lambda peer, params: restore_run(peer.hub, peer.caller, params.run),
    "_actor/tree": _tree,
    "_actor/subscribe": _watch_tree,
    "_actor/unsubscribe": lambda peer, params: peer.unsubscribe(params.subscription),
    "_actor/inspect": lambda peer, params: peer.hub.actors.inspect(peer.caller, params.path),
    "_actor/send": lambda peer, params: peer.hub.actors.send(peer.caller, params.path, params.text),
    "_actor/pause": lambda peer, params: peer.hub.actors.pause(peer.caller, params.path),
    "_actor/resume": lambda peer, params: peer.hub.actors.resume(peer.caller, params.path),
    "_actor/cancel": lambda peer, params: peer.hub.actors.cancel_actor(peer.caller, params.path),
    "_question/list": lambda peer, params: msgspec.to_builtins(peer.hub.questions(peer.caller, params.run)),
    "_question/answer": lambda peer, params: peer.hub.answer(peer.caller, params.question, params.value),
    "_question/subscribe": _watch_questions,
    "_question/unsubscribe": lambda peer, params: peer.unsubscribe(params.subscription),
    "_mcp/status": lambda peer, _: peer.hub.mcp_status(peer.caller),
    "_mcp/reload": lambda peer, params: peer.hub.mcp_reload(peer.caller, params.server),
    "_usage/read": lambda peer, params: usage_of(peer.hub.root, peer.caller, params.by, params.days),
    "_target/list": lambda peer, _: peer.hub.targets(peer.caller),
    "_server/info": _server_info,
}

_LONG = frozenset(
    {
        *("_run/list", "_run/get", "_run/events", "_run/graph", "_target/list", "_mcp/status", "_usage/read"),
        *("_run/calls", "_run/call", "_run/changes", "_run/restore", "_run/resume", "_run/rows"),
        *("_run/steps", "_run/fork"),
        *("_actor/tree", "_actor/subscribe", "_actor/inspect", "_question/list"),
    }
)


# --- sessions ----------------------------------------------------------------------------------------------


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


class SetRole(OfSession, frozen=True, kw_only=True):
    """`_session/set_role`: the role in which the model answers from now on, where no agent does; null for none."""

    role: Name | None = None


class ExportSession(OfSession, frozen=True, kw_only=True):
    """`_session/export`."""

    form: Literal["markdown", "json"] = "markdown"


class SessionList(msgspec.Struct, kw_only=True):
    """Result of `_session/list`, newest first."""

    sessions: list[SessionMeta]


class OneSession(msgspec.Struct, kw_only=True):
    """Result of `_session/get`, `_session/rename` and `_session/set_role`; `messages` as in the session's file."""

    session: SessionMeta
    messages: list[dict[str, Any]] = []


class Compressed(msgspec.Struct, kw_only=True):
    """Result of `_session/compress`: False if there was too little to shorten."""

    compressed: bool


class Exported(msgspec.Struct, kw_only=True):
    """Result of `_session/export`."""

    text: str


def _sessions(peer: Peer) -> Sessions:
    return peer.hub.root.sessions


async def _get_session(peer: Peer, params: OfSession) -> OneSession:
    stored = await _sessions(peer).get(peer.caller, params.session, agent=params.agent)
    meta = await trio.to_thread.run_sync(_sessions(peer).store.meta, stored)
    return OneSession(session=meta, messages=stored.session.messages)


async def _rename(peer: Peer, params: RenameSession) -> OneSession:
    meta = await _sessions(peer).rename(peer.caller, params.session, params.alias, agent=params.agent)
    return OneSession(session=meta)


async def _set_role(peer: Peer, params: SetRole) -> OneSession:
    await _sessions(peer).get(peer.caller, params.session, agent=params.agent)  # before anything is said of roles
    if params.role is not None:
        await trio.to_thread.run_sync(check_role, peer.caller, params.role, peer.hub.root)
    meta = await _sessions(peer).set_role(peer.caller, params.session, params.role, agent=params.agent)
    return OneSession(session=meta)


# --- all of them -------------------------------------------------------------------------------------------


def _method(params: Any, result: Any, call: Callable[[Peer, Any], Any], *, long: bool = False) -> Method:
    """A method whose `call` may return the value of the result's one field, and nothing for an empty one."""

    def filled(value: Any) -> Any:
        if isinstance(value, result | Follow):
            return value
        return result(**dict.fromkeys(result.__struct_fields__, value))

    async def later(value: Awaitable[Any]) -> Any:
        return filled(await value)

    def answer(peer: Peer, given: Any) -> Any:
        value = call(peer, given)
        return later(value) if inspect.iscoroutine(value) else filled(value)

    return Method(params, result, answer, long)


def _of_session(does: Callable[..., Awaitable[Any]], result: Any = Done) -> Method:
    return _method(
        OfSession,
        result,
        lambda peer, params: does(_sessions(peer), peer.caller, params.session, agent=params.agent),
    )


METHODS = {
    **{
        name: _method(params, result, _CALLS[name], long=name in _LONG)
        for name, (params, result) in schema.METHODS.items()
    },
    "_session/list": _method(
        ListSessions, SessionList, lambda peer, params: _sessions(peer).list(peer.caller, agent=params.agent), long=True
    ),
    "_session/get": _method(OfSession, OneSession, _get_session, long=True),
    "_session/rename": _method(RenameSession, OneSession, _rename),
    "_session/set_role": _method(SetRole, OneSession, _set_role),
    "_session/delete": _of_session(Sessions.delete),
    "_session/empty": _of_session(Sessions.empty),
    "_session/compress": _of_session(Sessions.compress, Compressed),
    "_session/export": _method(
        ExportSession,
        Exported,
        lambda peer, params: _sessions(peer).export(peer.caller, params.session, agent=params.agent, form=params.form),
        long=True,
    ),
}
"""Our own methods; those of ACP are in `acp.agent`."""
