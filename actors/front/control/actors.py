"""Actor tree of the hub: list, inspect, message, pause and cancel actors.

The kernel knows the position of an actor in the tree, and the views of runs know its activity. All callers share one
tree. Each sees the actors of the runs that it may see, and controls the actors of its own runs. With `admin:runs`, a
caller controls the actors of all runs. It also sees shared actors (servers, pools), but cannot control them.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import msgspec
import trio

from ....protocol import events as ev
from ....protocol.control.caller import Caller
from ....protocol.control.resources import ActorDetail, ActorInfo, ActorKind, TreeChange
from ....protocol.errors import Conflict, Denied, NotFound, UsageError
from ....protocol.events import Event
from ....protocol.messages import PersonSays
from ....supervisors import introspection
from ....supervisors.introspection import count_sent
from ....supervisors.memory import Memory
from ...views.run_view import ActorView, RunView
from .runs.running import Running, check_owner, sees
from .runs.summary import rfc3339

if TYPE_CHECKING:
    from ....supervisors import Actor
    from ...runs.root import Root

RECENT = 50
"""Maximum number of events of an actor that `inspect` returns."""

LONGEST_TEXT = 100_000
"""Maximum number of characters of a text for an agent."""

TURN = 1000
"""Actors handled in one go before other tasks get the event loop."""

_PAGE = os.sysconf("SC_PAGE_SIZE")
_MOVES = frozenset({ev.ActorSpawned, ev.ActorStopped, ev.ActorFailed})


class HubActors:
    """Actors of a hub, as `Hub.actors`. `check` raises if the caller may not see a run.

    Methods with a path raise `NotFound` for an actor that does not exist or has ended, and as `Hub.get` does for an
    actor of another subject's run. `pause`, `resume` and `cancel_actor` raise `Denied` for a shared actor.
    """

    def __init__(self, root: Root, runs: Running, check: Callable[[Caller, str], object]) -> None:
        self._kernel = root.kernel
        self._root = root.kernel.actor.root
        self._runs = runs
        self._check = check
        self._shared = RunView()
        self._memory = Memory(self._root)
        self._watches: dict[TreeWatcher, None] = {}

    # --- queries --------------------------------------------------------------------------------------------

    def tree(self, caller: Caller, run: str | None = None) -> list[ActorInfo]:
        """Return the actors of a run, or all that the caller may see; parents precede their children.

        The list is empty if the run has ended or has no actor in this process.
        """
        return [self._visible(actor) for actor in self._seen(caller, run)]

    async def measure(self, caller: Caller, run: str | None = None) -> None:
        """Measure the memory of the actors in `tree`, which then reports it."""
        await self._memory.measure(self._seen(caller, run))

    def _seen(self, caller: Caller, run: str | None) -> list[Actor]:
        caller.need("read:runs")
        top = None
        if run is not None:
            self._check(caller, run)
            top = self._root.actor.child(run)
            if top is None:
                return []
        return [actor for actor in introspection.census(self._root, top) if self._may_see(caller, actor.stream.run)]

    def watch_tree(self, caller: Caller, run: str | None = None, interval: float = 0.25) -> TreeWatcher:
        """Return a watcher of the tree, with at most one change per `interval` seconds.

        Raises:
            UsageError: `interval` is not from 0.02 to 60.
        """
        caller.need("read:runs")
        if run is not None:
            self._check(caller, run)
        if not 0.02 <= interval <= 60:
            raise UsageError(f"`interval` must be a number of seconds from 0.02 to 60, not {interval:g}")

        def concerns(of: str) -> bool:
            return run in (None, of) and self._may_see(caller, of)

        return TreeWatcher(self._info, self._measure, interval, concerns, self._watches, count_sent(self._root))

    async def inspect(self, caller: Caller, path: str) -> ActorDetail:
        """Return an actor with its stack and its events among the newest of its run: at most `RECENT`."""
        caller.need("read:runs")
        actor = self._actor(caller, path)
        await self._memory.measure([actor])
        shown = msgspec.structs.asdict(self._visible(actor))
        live = self._runs.live.get(actor.stream.run)
        recent = [event for event in live.ring if event.actor == path][-RECENT:] if live is not None else []
        stack = self._kernel.stack_of(actor)
        return ActorDetail(**shown, stack=stack, recent=[msgspec.Raw(event.data) for event in recent])

    # --- control --------------------------------------------------------------------------------------------

    async def send(self, caller: Caller, path: str, text: str) -> None:
        """Send a text to an LLM agent at work, which reads it before its next request to the model.

        Raises:
            UsageError: the text is empty or too long.
            Conflict: the actor is not an LLM agent, or it is stopping.
        """
        caller.need("write:runs")
        actor = self._actor(caller, path)
        if not text.strip() or len(text) > LONGEST_TEXT:
            raise UsageError(
                f"a message to an agent must have 1 to {LONGEST_TEXT} characters; this one has {len(text)}"
            )
        known = self._known(path, actor.stream.run)
        if known is None or not known.talks or actor.stopping:
            raise Conflict(f"{path} is no active LLM agent, so it can't read messages")
        await actor.ref.tell(PersonSays(text=text, by=caller.called))

    def pause(self, caller: Caller, path: str) -> bool:
        """Stop an actor and all below it from starting anything new.

        Returns False if this actor itself is paused already, or has ended; a paused ancestor does not count.
        """
        return introspection.pause(self._steered(caller, path))

    def resume(self, caller: Caller, path: str) -> bool:
        """Undo `pause`; returns False if this actor itself was not paused. It stays paused while an ancestor is."""
        return introspection.resume(self._steered(caller, path))

    def cancel_actor(self, caller: Caller, path: str) -> bool:
        """Interrupt an actor of a run; returns False if it is stopping already."""
        actor = self._steered(caller, path)
        if actor.stopping:
            return False
        actor.interrupt()
        return True

    def _actor(self, caller: Caller, path: str) -> Actor:
        actor = introspection.find(self._root, path)
        if actor is not None and path != "/":
            run = actor.stream.run
            # Actors outside of runs, such as MCP servers, are shared by all subjects.
            if not run and caller.has("admin:runs"):
                return actor
            if run:
                check_owner(caller, self._runs.owner_of(run), run)
                return actor
        raise NotFound(f"there is no actor {path[:200]!r}, or it has ended")

    def _steered(self, caller: Caller, path: str) -> Actor:
        caller.need("write:runs")
        actor = self._actor(caller, path)
        if not actor.stream.run:
            raise Denied(f"{path} can't be changed: it belongs to no run and is shared by all")
        return actor

    def _may_see(self, caller: Caller, run: str) -> bool:
        """Return True if the caller may see actors of this run; "" is the run id of shared actors."""
        return sees(caller, self._runs.owner_of(run)) if run else caller.has("admin:runs")

    # --- actor information -----------------------------------------------------------------------------------

    def take(self, event: Event) -> None:
        """Mark the actors that an event changes, for all watchers. The caller updates the view of the run first.

        Deltas of text change nothing in the tree and are ignored.
        """
        kind = type(event.data)
        if kind is ev.LlmDelta or kind is ev.LlmReasoning:
            return
        if not event.run:
            self._shared.see(event)
        moved = kind in _MOVES
        began = kind is ev.ActorSpawned
        for watch in self._watches:
            if kind is ev.LlmResponse or kind is ev.UsageUpdate:  # usage adds up in the run's own row
                watch.note(event.run, f"/{event.run}")
            watch.note(event.run, event.actor, began=began, ended=moved and not began)
            if moved:
                watch.note(event.run, event.parent)

    def _known(self, path: str, run: str) -> ActorView | None:
        view = self._runs.view_of(run) if run else self._shared
        return view.actors.get(path) if view is not None else None

    def _info(self, path: str) -> ActorInfo | None:
        actor = introspection.find(self._root, path)
        return None if actor is None else self._visible(actor)

    async def _measure(self, paths: Iterable[str]) -> None:
        """Measure the memory of those actors that still exist."""
        await self._memory.measure(
            [actor for path in paths if (actor := introspection.find(self._root, path)) is not None]
        )

    def _visible(self, actor: Actor) -> ActorInfo:
        parent = actor.parent
        info = ActorInfo(  # built field by field for speed: a tree may have ten thousand actors
            path=actor.path,
            parent=parent.path if parent is not None and parent.parent is not None else "",
            name=actor.name,
            run=actor.stream.run,
            state=actor.state,
            paused=introspection.is_paused(actor),
            mailbox=len(actor.mailbox),
            received=actor.mailbox.received,
            sent=introspection.sent_by(actor),
            children=actor.child_count,
            memory=self._memory.of(actor),
        )
        known = self._known(info.path, info.run)
        if known is None:
            info.kind = _by_place(info.path)
        else:
            info.kind = known.kind if known.kind != "actor" else _by_place(info.path)
            info.turns, info.restarts = known.turns, known.restarts
            info.input_tokens, info.output_tokens, info.cost = known.input_tokens, known.output_tokens, known.cost
            info.priced = known.priced
            info.events, info.last_event = known.events, known.last_event
            info.since = "" if known.since is None else rfc3339(known.since)
            if known.doing is not None:
                info.doing, info.doing_since = known.doing.name, rfc3339(known.doing.began.ts)
        if info.kind == "run" and (live := self._runs.live.get(info.run)) is not None:
            total = live.info
            info.input_tokens, info.output_tokens, info.cost = total.input_tokens, total.output_tokens, total.cost
            info.priced = total.priced
        return info


@dataclass(eq=False)
class TreeWatcher:
    """Iterator over changes of the tree, with at most one `TreeChange` per interval.

        with actors.watch_tree(caller) as changes:
            async for change in changes:
                ...

    Attributes:
        info: returns the current state of the actor at a path; None if it has ended.
        measure: measures the memory of actors before a change is built.
        interval: seconds.
        concerns: returns True if the reader receives changes of a run.
        all: registry of current watchers.
        counting: block in which the kernel counts the messages that actors send.
    """

    info: Callable[[str], ActorInfo | None]
    measure: Callable[[Iterable[str]], Awaitable[None]]
    interval: float
    concerns: Callable[[str], bool]
    all: dict[TreeWatcher, None]
    counting: AbstractContextManager[None]
    _touched: dict[str, bool] = field(default_factory=dict)
    _news: trio.lowlevel.ParkingLot = field(default_factory=trio.lowlevel.ParkingLot)

    def __enter__(self) -> Self:
        self.counting.__enter__()
        self.all[self] = None
        return self

    def __exit__(self, *_: object) -> None:
        # The stored value is None, so a second exit gets the default and stops no counting.
        if self.all.pop(self, self) is None:
            self.counting.__exit__(None, None, None)

    def note(self, run: str, path: str, *, began: bool = False, ended: bool = False) -> None:
        """Mark an actor as changed.

        An actor that began and ended since the last change is left out. So the pending changes of a slow reader are
        bounded by the tree plus the actors that the reader already knows.
        """
        if not self.concerns(run):
            return
        if ended and self._touched.pop(path, False):
            return
        if not self._touched:
            # Before the mark is stored, which is safe: the woken task runs only after this function.
            self._news.unpark_all()
        self._touched.setdefault(path, began)

    def __aiter__(self) -> TreeWatcher:
        return self

    async def __anext__(self) -> TreeChange:
        while True:
            while not self._touched:
                await self._news.park()
            # The wait comes first, so that the changes of an interval are one message.
            await trio.sleep(self.interval)
            change = await self._change()
            if change.changed or change.gone:
                return change

    async def _change(self) -> TreeChange:
        touched, self._touched = self._touched, {}
        changed: list[ActorInfo] = []
        gone: list[str] = []
        paths = sorted(touched.keys() - {"", "/"})
        await self.measure(paths)
        for number, path in enumerate(paths):
            if number % TURN == TURN - 1:
                await trio.lowlevel.checkpoint()
            info = self.info(path)
            if info is None:
                gone.append(path)
            else:
                changed.append(info)
        return TreeChange(changed=changed, gone=gone)


def _by_place(path: str) -> ActorKind:
    """Return the kind of an actor without events, derived from its path."""
    if path.startswith("/run-") and path.count("/") == 1:
        return "run"
    return "mcp" if path.startswith("/mcp/") else "actor"


def memory_of_process() -> int:
    """Return the resident bytes of this process; 0 on systems without /proc."""
    try:
        with open("/proc/self/statm", "rb") as file:  # noqa: PTH123 - a Path costs more than the reading
            return int(file.read().split()[1]) * _PAGE
    except (OSError, IndexError, ValueError):
        return 0
