"""The actors as clients see them: the kernel has their place in the tree, the views of runs their activity."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Self

import trio

from ....protocol import events as ev
from ....protocol.control.things import ActorInfo, ActorKind, TreeChange
from ....protocol.events import Event
from ....supervisors import Actor
from ....supervisors.census import Seen, census, count_sent, find, look_at
from ...views.activity import ActorView
from ...views.run_view import RunView
from .memory import memory_of_process
from .runs.summary import rfc3339

TURN = 1000
"""Actors that are looked at in a row, before others get a look in."""


class Tree:
    """See the module.

    Args:
        top: the root of all actors.
        views: what is known of a run under way, by its id.
    """

    def __init__(self, top: Actor, views: Callable[[str], RunView | None]) -> None:
        self._root = top.root
        self._views = views
        self._shared = RunView()
        self._watches: dict[TreeWatch, None] = {}

    def take(self, event: Event) -> None:
        """An event has happened; that of a run, its view has seen. Pieces of text change nothing that is shown."""
        kind = type(event.data)
        if kind is ev.LlmDelta or kind is ev.LlmReasoning:
            return
        if not event.run:
            self._shared.see(event)
        moved = kind in _MOVES
        spent = kind is ev.LlmResponse or kind is ev.UsageUpdate
        for watch in self._watches:
            if spent:  # the run's row shows what all in it have used
                watch.note(event.run, f"/{event.run}")
            watch.note(
                event.run, event.actor, began=kind is ev.ActorSpawned, ended=moved and kind is not ev.ActorSpawned
            )
            if moved:
                watch.note(event.run, event.parent)

    def _known(self, path: str, run: str) -> ActorView | None:
        """What its events have told of an actor."""
        view = self._views(run) if run else self._shared
        return view.actors.get(path) if view is not None else None

    # --- looking --------------------------------------------------------------------------------------------

    def find(self, path: str) -> Actor | None:
        """The living actor with this path."""
        return find(self._root, path)

    def talks(self, actor: Actor) -> bool:
        """Whether the actor holds a conversation with a model."""
        known = self._known(actor.path, actor.stream.run)
        return known is not None and known.talks

    def all(self, run: str | None) -> list[ActorInfo]:
        """Everybody, or those of one run; parents before their children."""
        top = None if run is None else self._root.actor.child(run)
        if run is not None and top is None:
            return []
        return [self._shown(seen) for seen in census(self._root, top)]

    def info(self, actor: Actor) -> ActorInfo:
        """One actor."""
        return self._shown(look_at(actor))

    def _shown(self, seen: Seen) -> ActorInfo:
        info = ActorInfo(  # one by one: a tree may have ten thousand
            path=seen.path,
            parent=seen.parent,
            name=seen.name,
            run=seen.run,
            state=seen.state,
            paused=seen.paused,
            mailbox=seen.mailbox,
            received=seen.received,
            sent=seen.sent,
            children=seen.children,
            memory=memory_of_process(seen.pid) if seen.pid else 0,
        )
        known = self._known(info.path, info.run)
        if known is None:
            info.kind = _by_place(info.path)
            return info
        info.kind = known.kind if known.kind != "actor" else _by_place(info.path)
        info.turns, info.restarts = known.turns, known.restarts
        info.input_tokens, info.output_tokens, info.cost = known.input_tokens, known.output_tokens, known.cost
        info.events, info.last_event = known.events, known.last_event
        info.since = "" if known.since is None else rfc3339(known.since)
        doing = known.doing
        if doing is not None:
            info.doing, info.doing_since = doing.name, rfc3339(doing.began.ts)
        return info

    # --- watching -------------------------------------------------------------------------------------------

    def watch(
        self,
        interval: float,
        concerns: Callable[[str], bool],
        shown: Callable[[ActorInfo], ActorInfo] = lambda actor: actor,
    ) -> TreeWatch:
        """Changes, gathered for so many seconds, of those runs (by id) that concern the reader.

        Args:
            shown: adds what is not known here.
        """
        return TreeWatch(self, interval, concerns, self._watches, shown, count_sent(self._root))


class TreeWatch:
    """Changes of the tree as they come, at most one `TreeChange` per interval.

    with tree.watch(None, 0.25) as changes:
        async for change in changes:
            ...
    """

    def __init__(
        self,
        tree: Tree,
        interval: float,
        concerns: Callable[[str], bool],
        all: dict[TreeWatch, None],
        shown: Callable[[ActorInfo], ActorInfo],
        counting: AbstractContextManager[None],
    ) -> None:
        self._tree = tree
        self._shown = shown
        self._concerns = concerns
        self._interval = interval
        self._all = all
        self._counting = counting
        self._touched: dict[str, bool] = {}
        self._news = trio.lowlevel.ParkingLot()

    def __enter__(self) -> Self:
        self._counting.__enter__()
        self._all[self] = None
        return self

    def __exit__(self, *_: object) -> None:
        if self._all.pop(self, self) is None:
            self._counting.__exit__(None, None, None)

    def note(self, run: str, path: str, *, began: bool = False, ended: bool = False) -> None:
        """Something has happened to this actor.

        One that began and ended since the last change is not worth a word: so what waits for a reader who is slow
        grows no further than the tree and what the reader knows of.
        """
        if not self._concerns(run):
            return
        if ended and self._touched.pop(path, False):
            return
        if not self._touched:
            self._news.unpark_all()
        self._touched.setdefault(path, began)

    def __aiter__(self) -> TreeWatch:
        return self

    async def __anext__(self) -> TreeChange:
        while True:
            while not self._touched:
                await self._news.park()
            await trio.sleep(self._interval)
            change = await self._change()
            if change.changed or change.gone:
                return change

    async def _change(self) -> TreeChange:
        touched, self._touched = self._touched, {}
        changed: list[ActorInfo] = []
        gone: list[str] = []
        for number, path in enumerate(sorted(touched.keys() - {"", "/"})):
            if number % TURN == TURN - 1:
                await trio.lowlevel.checkpoint()
            actor = self._tree.find(path)
            if actor is None:
                gone.append(path)
            else:
                changed.append(self._shown(self._tree.info(actor)))
        return TreeChange(changed=changed, gone=gone)


_MOVES = frozenset({ev.ActorSpawned, ev.ActorStopped, ev.ActorFailed})


def _by_place(path: str) -> ActorKind:
    """What an actor that has told nothing is, by where it stands."""
    if path.startswith("/run-") and path.count("/") == 1:
        return "run"
    return "mcp" if path.startswith("/mcp/") else "actor"
