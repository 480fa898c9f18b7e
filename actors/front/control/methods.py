"""Table of the JSON-RPC methods that a client can call, and the construction of a hub with them (`open_hub`).

docs/control.md describes each method with an example. A handler in `_CALLS` may return a result struct, the bare value
of the only field of that struct, or a coroutine of either. A `Follow` starts a subscription after the answer.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from ....protocol.control import method_structs, schema
from ....protocol.control.resources import QuestionAsked
from ....protocol.errors import Denied, NotFound, UsageError
from ....protocol.version import VERSION
from ...io.directories import state_dir
from ...runs.sessions.session_locks import Sessions
from .actors import memory_of_process
from .durable_runs import fork_run, rows_of, steps_of_run
from .hub import END_WITHIN, Hub, Method
from .logs.run_logs import RunLogs
from .peer import ControlPeer, Follow
from .requests import check_role
from .run_records import call_of, calls_of, changes_of_run, restore_run
from .runs.live_run import HubOptions
from .runs.summary import outcome_of
from .subscriptions import FeedLagged, Lagged, Subscription
from .usage import usage_of

if TYPE_CHECKING:
    from ....protocol.control.resources import ActorInfo
    from ...runs.root import Root
    from .actors import TreeWatcher
    from .cluster import Cluster


LONGEST_PORTION = 512 * 1024
"""Bytes of actors in one frame."""

MOST_EVENTS = MOST_RUNS = 1000
"""Events, or runs, on one page."""

SETTLES_WITHIN = 2.0
"""Seconds for other workers to report again the actors that existed when a client began to watch."""

AGAIN_AFTER = 1.0
"""Seconds before a reader of an unreadable log may retry."""

log = logging.getLogger("callboard.control")


# --- runs --------------------------------------------------------------------------------------------------


async def _start(peer: ControlPeer, params: method_structs.StartRun) -> Any:
    return await peer.hub.start(peer.caller, await peer.hub.sessions.placed(peer.caller, params))


def _list(peer: ControlPeer, params: method_structs.ListRuns) -> method_structs.Runs:
    _check_limit(params.limit, MOST_RUNS)
    runs, next = peer.hub.page(peer.caller, status=params.status, limit=params.limit, before=params.before)
    return method_structs.Runs(runs=runs, next=next)


def _check_limit(limit: int, most: int) -> None:
    if not 1 <= limit <= most:
        raise UsageError(f"`limit` must be a number from 1 to {most}, not {limit}")


async def _output(peer: ControlPeer, params: method_structs.ReadOutput) -> method_structs.Output:
    info = peer.hub.get(peer.caller, params.run)
    found = await peer.hub.events(peer.caller, params.run, info.seq - 1, 1) if info.over and info.seq else []
    text = str(outcome_of(info, found[0] if found else None).output or "")
    end = params.start + params.limit
    return method_structs.Output(text=text[params.start : end], next=end if end < len(text) else None, length=len(text))


def _subscribe(peer: ControlPeer, params: method_structs.Subscribe) -> Follow:
    events = peer.hub.subscribe(peer.caller, params.run, params.after)
    seq = peer.hub.get(peer.caller, params.run).seq
    id = peer.new_subscription()
    return Follow(method_structs.Subscribed(subscription=id, seq=seq), partial(_send_events, peer, id, events), id)


async def _send_events(peer: ControlPeer, id: str, events: Subscription) -> None:
    """Send the events of a run as `_run/event` frames until it ends, the reader lags or the log is unreadable.

    The JSON around an event is encoded once per subscription: each frame only adds the stored bytes of the event.
    """
    head = {"jsonrpc": "2.0", "method": "_run/event", "params": {"subscription": id, "run": events.run}}
    opening = msgspec.json.encode(head)[:-2] + b',"event":'
    told: tuple[int, int] | None = None
    try:
        while True:
            # Only events read from this process's log occupy memory of their own, so only those take the key's turn.
            async with peer.turn if events.reads_log else contextlib.nullcontext():
                several = await events.batch()
                if events.lost != told and events.lost is not None:
                    told = events.lost
                    lost = method_structs.RunLost(subscription=id, run=events.run, first=told[0], last=told[1])
                    await peer.notify("_run/lost", lost)
                if not several:
                    break
                for event in several:
                    await peer.room()
                    await peer.send(_event_frame(peer, head, opening, event.data))
                    events.seq = event.seq
    except (Lagged, OSError) as error:
        if isinstance(error, OSError):  # too many open files, perhaps: the client may try again, but not at once
            log.warning("the log of %s can't be read: %s", events.run, error)
            await trio.sleep(AGAIN_AFTER)
        behind = method_structs.RunLagged(subscription=id, run=events.run, after=events.seq, seq=events.info.seq)
        await peer.notify("_run/lagged", behind)
        return
    await peer.notify("_run/ended", method_structs.RunEnded(subscription=id, run=events.run, status=events.info.status))


def _event_frame(peer: ControlPeer, head: dict[str, Any], opening: bytes, event: bytes) -> bytes:
    frame = opening + event + b"}}"
    if not peer.max_frame or len(frame) <= peer.max_frame:
        return frame
    return peer.encoded_notification(head["method"], {**head["params"], "event": msgspec.Raw(event)})


async def _events(peer: ControlPeer, params: method_structs.ReadEvents) -> method_structs.Events:
    _check_limit(params.limit, MOST_EVENTS)
    if params.after < 0:
        raise UsageError(f"`after` must be the number of an event, or 0 for all events, not {params.after}")
    return await peer.hub.page_of_events(peer.caller, params.run, params.after, params.limit)


async def _rows(peer: ControlPeer, params: method_structs.ReadRows) -> method_structs.Rows:
    _check_limit(params.limit, MOST_EVENTS)
    return await rows_of(peer.hub, peer.caller, params.run, params.after, params.limit)


async def _steps(peer: ControlPeer, params: method_structs.ReadSteps) -> method_structs.Steps:
    _check_limit(params.limit, MOST_EVENTS)
    return await steps_of_run(peer.hub, peer.caller, params.run, params.after, params.limit)


# --- actors ------------------------------------------------------------------------------------------------


async def _tree(peer: ControlPeer, params: method_structs.TreeOf) -> method_structs.Actors:
    await peer.hub.actors.measure(peer.caller, params.run)
    actors = peer.hub.actors.tree(peer.caller, params.run)
    if (cluster := _cluster_with_actors(peer, params.run)) is not None:
        actors += _visible_actors(peer, await cluster.actors(params.run))
    return method_structs.Actors(actors=actors, memory=memory_of_process())


def _cluster_with_actors(peer: ControlPeer, run: str | None) -> Cluster | None:
    """Return the cluster if other processes may have actors of the run (None: of any run)."""
    cluster = peer.hub.cluster
    return cluster if cluster is not None and cluster.shows_actors(run) else None


def _visible_actors(peer: ControlPeer, actors: list[ActorInfo]) -> list[ActorInfo]:
    """Return the actors of runs that the caller may see."""
    known: dict[str, bool] = {}
    for run in {actor.run for actor in actors}:
        try:
            known[run] = bool(peer.hub.get(peer.caller, run))
        except (NotFound, Denied):
            known[run] = False
    return [actor for actor in actors if known[actor.run]]


async def _watch_tree(peer: ControlPeer, params: method_structs.WatchTree) -> Follow:
    watch = peer.hub.actors.watch_tree(peer.caller, params.run, params.interval)
    await peer.hub.actors.measure(peer.caller, params.run)
    cluster = _cluster_with_actors(peer, params.run)
    others = [] if cluster is None else _visible_actors(peer, await cluster.actors(params.run))
    id = peer.new_subscription()
    watch.__enter__()  # before the tree is read, so no change falls between the result and the watch
    actors = peer.hub.actors.tree(peer.caller, params.run)
    # Many actors exceed one frame: the answer has the first portion, notifications have the rest.
    first, *rest = in_portions(actors + others) or [[]]
    result = method_structs.WatchingTree(subscription=id, actors=first, memory=memory_of_process())
    body = partial(_send_changes, peer, id, watch)
    if cluster is not None:
        body = partial(_send_cluster_changes, peer, id, watch, cluster, params, others)

    async def all_then_changes() -> None:
        for portion in rest:
            await _send_change(peer, id, portion, [])
        await body()

    return Follow(result, all_then_changes, id, watch.__exit__)


def in_portions(actors: list[ActorInfo]) -> list[list[ActorInfo]]:
    """Split actors into lists that each fit into one frame of `LONGEST_PORTION` bytes."""
    portions: list[list[ActorInfo]] = []
    size = 0
    for actor in actors:
        mine = len(msgspec.json.encode(actor)) + 1
        if not portions or size + mine > LONGEST_PORTION:
            portions.append([])
            size = 0
        portions[-1].append(actor)
        size += mine
    return portions


async def _send_change(peer: ControlPeer, id: str, changed: list[ActorInfo], gone: list[str]) -> None:
    """Send a change of the tree, in several frames if it is large."""
    first, *rest = in_portions(changed) or [[]]
    memory = memory_of_process()
    for number, portion in enumerate((first, *rest)):
        told = method_structs.ActorsChanged(
            subscription=id, changed=portion, gone=[] if number else gone, memory=memory
        )
        await peer.notify("_actor/changed", told)
        await peer.room()  # wait before the next portion is encoded, so a slow client costs no memory


async def _send_cluster_changes(
    peer: ControlPeer,
    id: str,
    watch: TreeWatcher,
    cluster: Cluster,
    params: method_structs.WatchTree,
    before: list[ActorInfo],
) -> None:
    """Send changes of this process and of other workers.

    Actors in `before` that no worker reports within `SETTLES_WITHIN` are sent as gone.
    """
    stale = {actor.path for actor in before}

    async def take(changed: list[ActorInfo], gone: list[str]) -> None:
        shown = _visible_actors(peer, changed)
        stale.difference_update(actor.path for actor in shown)
        await _send_change(peer, id, shown, gone)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(_send_changes, peer, id, watch)
        nursery.start_soon(cluster.watch_actors, params.run, params.interval, take)
        await trio.sleep(SETTLES_WITHIN)
        if stale:
            await take([], sorted(stale))


async def _send_changes(peer: ControlPeer, id: str, watch: TreeWatcher) -> None:
    async for change in watch:
        await _send_change(peer, id, change.changed, change.gone)


# --- questions ---------------------------------------------------------------------------------------------


def _watch_questions(peer: ControlPeer, _: method_structs.Nothing) -> Follow:
    id = peer.new_subscription()
    return Follow(method_structs.Watching(subscription=id), partial(_send_questions, peer, id), id)


async def _send_questions(peer: ControlPeer, id: str) -> None:
    try:
        with peer.hub.watch_questions(peer.caller) as feed:
            async for news in feed:
                await peer.room()
                if isinstance(news, QuestionAsked):
                    await peer.notify("_question/asked", method_structs.Asked(subscription=id, question=news.question))
                else:
                    closed = method_structs.Closed(subscription=id, question=news.question, by=news.by)
                    await peer.notify("_question/closed", closed)
    except FeedLagged:
        await peer.notify("_question/lagged", method_structs.QuestionsLagged(subscription=id))


# --- the server --------------------------------------------------------------------------------------------


def _server_info(peer: ControlPeer, _: method_structs.Nothing) -> method_structs.ServerInfo:
    return method_structs.ServerInfo(
        name="callboard",
        version=VERSION,
        subject=peer.caller.subject,
        scopes=sorted(peer.caller.scopes),
        protocol=method_structs.VERSION,
        runs=peer.hub.under_way,
        uptime=trio.current_time() - peer.hub.since,
    )


_CALLS: dict[str, Callable[[ControlPeer, Any], Any]] = {
    "_run/start": _start,
    "_run/list": _list,
    "_run/get": lambda peer, params: peer.hub.read_run(peer.caller, params.run),
    "_run/cancel": lambda peer, params: peer.hub.cancel(peer.caller, params.run),
    "_run/resume": lambda peer, given: peer.hub.resume(peer.caller, given.run, with_changes=given.with_changes),
    "_run/rows": _rows,
    "_run/steps": _steps,
    "_run/fork": lambda peer, given: fork_run(peer.hub, peer.caller, given),
    "_run/delete": lambda peer, params: peer.hub.delete(peer.caller, params.run),
    "_run/subscribe": _subscribe,
    "_run/unsubscribe": lambda peer, params: peer.unsubscribe(params.subscription),
    "_run/events": _events,
    "_run/output": _output,
    "_result/part": lambda peer, given: peer.part(given.method, given.params, given.start, given.etag),
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

# Methods with `Method.long`: their results may be large, so they wait for room and for the key's turn.
_LONG = frozenset(
    {
        *("_run/list", "_run/get", "_run/events", "_run/graph", "_target/list", "_mcp/status", "_usage/read"),
        *("_run/calls", "_run/call", "_run/changes", "_run/restore", "_run/resume", "_run/rows"),
        *("_run/steps", "_run/fork", "_run/output", "_result/part"),
        *("_actor/tree", "_actor/subscribe", "_actor/inspect", "_question/list"),
        *("_session/list", "_session/get", "_session/export"),
    }
)


# --- sessions ----------------------------------------------------------------------------------------------


def _sessions(peer: ControlPeer) -> Sessions:
    return peer.hub.root.sessions


async def _get_session(peer: ControlPeer, params: method_structs.OfSession) -> method_structs.OneSession:
    stored = await _sessions(peer).get(peer.caller, params.session, agent=params.agent)
    meta = await trio.to_thread.run_sync(_sessions(peer).store.meta, stored)
    return method_structs.OneSession(session=meta, messages=stored.session.messages)


async def _rename(peer: ControlPeer, params: method_structs.RenameSession) -> method_structs.OneSession:
    meta = await _sessions(peer).rename(peer.caller, params.session, params.alias, agent=params.agent)
    return method_structs.OneSession(session=meta)


async def _set_role(peer: ControlPeer, params: method_structs.SetRole) -> method_structs.OneSession:
    # First: a caller without access to the session must not learn from an error which roles exist.
    await _sessions(peer).get(peer.caller, params.session, agent=params.agent)
    if params.role is not None:
        await trio.to_thread.run_sync(check_role, peer.caller, params.role, peer.hub.root)
    meta = await _sessions(peer).set_role(peer.caller, params.session, params.role, agent=params.agent)
    return method_structs.OneSession(session=meta)


_SESSION_CALLS: dict[str, Callable[[ControlPeer, Any], Any]] = {
    "_session/list": lambda peer, params: _sessions(peer).list(peer.caller, agent=params.agent),
    "_session/get": _get_session,
    "_session/rename": _rename,
    "_session/set_role": _set_role,
    "_session/delete": lambda peer, params: _sessions(peer).delete(peer.caller, params.session, agent=params.agent),
    "_session/empty": lambda peer, params: _sessions(peer).empty(peer.caller, params.session, agent=params.agent),
    "_session/compress": lambda peer, params: _sessions(peer).compress(peer.caller, params.session, agent=params.agent),
    "_session/export": lambda peer, params: _sessions(peer).export(
        peer.caller, params.session, agent=params.agent, form=params.form
    ),
}


# --- all of them -------------------------------------------------------------------------------------------


def _method(params: Any, result: Any, call: Callable[[ControlPeer, Any], Any], *, long: bool = False) -> Method:
    """Return a method whose `call` may return the value of the result's only field, or anything for an empty result."""

    def filled(value: Any) -> Any:
        if isinstance(value, result | Follow):
            return value
        return result(**dict.fromkeys(result.__struct_fields__, value))

    async def later(value: Awaitable[Any]) -> Any:
        return filled(await value)

    def answer(peer: ControlPeer, given: Any) -> Any:
        value = call(peer, given)
        return later(value) if inspect.iscoroutine(value) else filled(value)

    return Method(params, result, answer, long)


METHODS = {
    name: _method(params, result, (_CALLS | _SESSION_CALLS)[name], long=name in _LONG)
    for name, (params, result) in schema.METHODS.items()
}
"""Callboard's own methods; `acp.agent` has those of ACP."""


@contextlib.asynccontextmanager
async def open_hub(
    root: Root,
    *,
    directory: Path | None = None,
    options: HubOptions | None = None,
    redact: Callable[[bytes], bytes] | None = None,
    cluster: Cluster | None = None,
) -> AsyncIterator[Hub]:
    """Open the hub of a process for the length of the block; runs under way at its end are interrupted.

    Args:
        directory: directory of the logs; by default `runs` in the state directory.
        redact: removes secrets from an encoded event before any reader gets it.
        cluster: executes runs in other processes, or lets this process execute runs of others.

    Raises:
        ConfigError: the logs cannot be stored in the directory.
    """
    options = options or HubOptions(keep_runs=root.settings.api.keep_runs)
    logs = (RunLogs if cluster is None else cluster.logs)(
        directory or state_dir(os.environ) / "runs",
        keep=options.keep_runs,
        shows_interrupted=root.settings.durable.resume != "never",
    )
    await logs.__aenter__()
    try:
        hub = Hub(root, logs, options, redact, cluster)
        async with hub.open():
            hub.methods = dict(METHODS)
            yield hub
    finally:
        with root.kernel.shield(END_WITHIN):
            await logs.aclose()
