"""What a client may call: our own methods, by name, with the structs of their parameters.

Those of sessions are in `sessions`. docs/control.md has each of them with an example.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from ....protocol.control import own, schema
from ....protocol.control.things import GraphPicture, QuestionAsked
from ....protocol.errors import UsageError
from ....protocol.version import VERSION
from .asking import shown
from .feed import FeedLagged
from .memory import memory_of_process
from .method import Method
from .peer import Follow, Peer
from .subscription import Lagged, Subscription

if TYPE_CHECKING:
    from .tree import TreeWatch

MOST_EVENTS = 1000
"""Of one page."""

MOST_RUNS = 1000

AGAIN_AFTER = 1.0
"""The retry time, in seconds, for a reader of an unreadable log."""

log = logging.getLogger("callboard.control")


# --- runs --------------------------------------------------------------------------------------------------


async def _start(peer: Peer, params: own.StartRun) -> own.OneRun:
    sessions = peer.hub.sessions
    wanted = params if sessions is None else await sessions.placed(peer.caller, params)
    return own.OneRun(run=await peer.hub.start(peer.caller, wanted))


def _list(peer: Peer, params: own.ListRuns) -> own.Runs:
    if not 1 <= params.limit <= MOST_RUNS:
        raise UsageError(f"`limit` is a number from 1 to {MOST_RUNS}, not {params.limit}")
    runs, next = peer.hub.page(peer.caller, status=params.status, limit=params.limit, before=params.before)
    return own.Runs(runs=runs, next=next)


async def _get(peer: Peer, params: own.OfRun) -> own.OneRun:
    return own.OneRun(run=await peer.hub.look(peer.caller, params.run))


def _cancel(peer: Peer, params: own.OfRun) -> own.Cancelled:
    return own.Cancelled(cancelled=peer.hub.cancel(peer.caller, params.run))


async def _delete(peer: Peer, params: own.OfRun) -> own.Done:
    await peer.hub.delete(peer.caller, params.run)
    return own.Done()


def _subscribe(peer: Peer, params: own.Subscribe) -> Follow:
    events = peer.hub.subscribe(peer.caller, params.run, params.after)
    seq = peer.hub.get(peer.caller, params.run).seq
    id = peer.new_subscription()
    return Follow(own.Subscribed(subscription=id, seq=seq), _tell_events, peer, id, events, id=id)


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
    if not 1 <= params.limit <= MOST_EVENTS:
        raise UsageError(f"`limit` is a number from 1 to {MOST_EVENTS}, not {params.limit}")
    if params.after < 0:
        raise UsageError(f"`after` is the number of an event, 0 for before the first, not {params.after}")
    found = await peer.hub.events(peer.caller, params.run, params.after, params.limit)
    after = found[-1].seq if found else params.after
    info = peer.hub.get(peer.caller, params.run)
    at_the_end = info.over and (after >= info.seq or not found)
    return own.Events(events=[msgspec.Raw(event.data) for event in found], next=None if at_the_end else after)


async def _graph(peer: Peer, params: own.OfRun) -> GraphPicture:
    return await trio.to_thread.run_sync(peer.hub.graph_of, peer.caller, params.run)  # files are read


def _unsubscribe(peer: Peer, params: own.Unsubscribe) -> own.Unsubscribed:
    return own.Unsubscribed(unsubscribed=peer.unsubscribe(params.subscription))


# --- actors ------------------------------------------------------------------------------------------------


def _tree(peer: Peer, params: own.TreeOf) -> own.Actors:
    return own.Actors(actors=peer.hub.actors.tree(peer.caller, params.run), memory=memory_of_process())


def _watch_tree(peer: Peer, params: own.WatchTree) -> Follow:
    watch = peer.hub.actors.watch_tree(peer.caller, params.run, params.interval)
    id = peer.new_subscription()
    watch.__enter__()  # from here on nothing is missed
    actors = peer.hub.actors.tree(peer.caller, params.run)
    result = own.WatchingTree(subscription=id, actors=actors, memory=memory_of_process())
    return Follow(result, _tell_changes, peer, id, watch, id=id, after=watch.__exit__)


async def _tell_changes(peer: Peer, id: str, watch: TreeWatch) -> None:
    async for change in watch:
        memory = memory_of_process()
        told = own.ActorsChanged(subscription=id, changed=change.changed, gone=change.gone, memory=memory)
        await peer.notify("_actor/changed", told)
        await peer.room()  # before the next change is made


def _inspect(peer: Peer, params: own.OfActor) -> own.OneActor:
    return own.OneActor(actor=peer.hub.actors.inspect(peer.caller, params.path))


async def _send(peer: Peer, params: own.SendText) -> own.Done:
    await peer.hub.actors.send(peer.caller, params.path, params.text)
    return own.Done()


def _pause(peer: Peer, params: own.OfActor) -> own.Paused:
    return own.Paused(paused=peer.hub.actors.pause(peer.caller, params.path))


def _resume(peer: Peer, params: own.OfActor) -> own.Resumed:
    return own.Resumed(resumed=peer.hub.actors.resume(peer.caller, params.path))


def _cancel_actor(peer: Peer, params: own.OfActor) -> own.Cancelled:
    return own.Cancelled(cancelled=peer.hub.actors.cancel_actor(peer.caller, params.path))


# --- questions ---------------------------------------------------------------------------------------------


def _questions(peer: Peer, params: own.ListQuestions) -> own.Questions:
    return own.Questions(questions=[shown(each) for each in peer.hub.questions(peer.caller, params.run)])


def _answer(peer: Peer, params: own.AnswerQuestion) -> own.Answered:
    return own.Answered(answered=peer.hub.answer(peer.caller, params.question, params.value))


def _watch_questions(peer: Peer, params: own.Nothing) -> Follow:  # noqa: ARG001 - it has none
    id = peer.new_subscription()
    return Follow(own.Watching(subscription=id), _tell_questions, peer, id, id=id)


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


# --- the rest ----------------------------------------------------------------------------------------------


def _mcp_status(peer: Peer, params: own.Nothing) -> own.Servers:  # noqa: ARG001 - it has none
    return own.Servers(servers=peer.hub.mcp_status(peer.caller))


async def _mcp_reload(peer: Peer, params: own.ReloadServers) -> own.Reloaded:
    return own.Reloaded(reloaded=await peer.hub.mcp_reload(peer.caller, params.server))


async def _targets(peer: Peer, params: own.Nothing) -> own.Targets:  # noqa: ARG001 - it has none
    return own.Targets(targets=await peer.hub.targets(peer.caller))


def _server_info(peer: Peer, params: own.Nothing) -> own.ServerInfo:  # noqa: ARG001 - it has none
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
    "_run/get": _get,
    "_run/cancel": _cancel,
    "_run/delete": _delete,
    "_run/subscribe": _subscribe,
    "_run/unsubscribe": _unsubscribe,
    "_run/events": _events,
    "_run/graph": _graph,
    "_actor/tree": _tree,
    "_actor/subscribe": _watch_tree,
    "_actor/unsubscribe": _unsubscribe,
    "_actor/inspect": _inspect,
    "_actor/send": _send,
    "_actor/pause": _pause,
    "_actor/resume": _resume,
    "_actor/cancel": _cancel_actor,
    "_question/list": _questions,
    "_question/answer": _answer,
    "_question/subscribe": _watch_questions,
    "_question/unsubscribe": _unsubscribe,
    "_mcp/status": _mcp_status,
    "_mcp/reload": _mcp_reload,
    "_target/list": _targets,
    "_server/info": _server_info,
}

_LONG = frozenset(
    {
        *("_run/list", "_run/get", "_run/events", "_run/graph", "_target/list", "_mcp/status"),
        *("_actor/tree", "_actor/subscribe", "_actor/inspect", "_question/list"),
    }
)

METHODS = {
    name: Method(params, result, _CALLS[name], long=name in _LONG) for name, (params, result) in schema.METHODS.items()
}
"""Our own methods."""
