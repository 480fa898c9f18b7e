"""Shows and steers the actors of runs: lists them, writes to them, pauses and cancels them.

The tree is one, the callers are many: each sees the actors of the runs that it may see, and steers those of its own.
With `admin:runs` a caller also sees what runs share (servers, pools), but does not steer it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from ....protocol.control.caller import Caller
from ....protocol.control.things import ActorDetail, ActorInfo
from ....protocol.errors import Conflict, Denied, NotFound, UsageError
from ....protocol.messages import PersonSays
from ....supervisors import census
from .runs.access import check_owner, sees
from .runs.record import Record
from .runs.running import Running
from .tree import Tree, TreeWatch

if TYPE_CHECKING:
    from ....supervisors import Actor
    from ...runs.root import Root

RECENT = 50
"""Events that `inspect` shows of an actor."""

LONGEST_TEXT = 100_000
"""Characters that may be written to an agent at work."""


class Steering:
    """The actors of a hub: `Hub.actors`. `check` raises where the caller may not see a run."""

    def __init__(self, root: Root, tree: Tree, runs: Running, check: Callable[[Caller, str], object]) -> None:
        self._root = root
        self._tree = tree
        self._runs = runs
        self._check = check

    def tree(self, caller: Caller, run: str | None = None) -> list[ActorInfo]:
        """The actors of a run, or all that the caller may see; parents before their children."""
        caller.need("read:runs")
        if run is not None:
            self._check(caller, run)
        return [self._with_totals(actor) for actor in self._tree.all(run) if self._may_see(caller, actor.run)]

    def watch_tree(self, caller: Caller, run: str | None = None, interval: float = 0.25) -> TreeWatch:
        """Changes of the tree, at most one of them per interval."""
        caller.need("read:runs")
        if run is not None:
            self._check(caller, run)
        if not 0.02 <= interval <= 60:
            raise UsageError(f"`interval` is a number of seconds from 0.02 to 60, not {interval:g}")
        return self._tree.watch(interval, lambda of: run in (None, of) and self._may_see(caller, of), self._with_totals)

    def inspect(self, caller: Caller, path: str) -> ActorDetail:
        """An actor, looked at closely."""
        caller.need("read:runs")
        actor = self._actor(caller, path)
        shown = msgspec.structs.asdict(self._with_totals(self._tree.info(actor)))
        record = self._runs.live.get(actor.stream.run)
        recent: list[msgspec.Raw] = []
        if record is not None:
            recent = [msgspec.Raw(event.data) for event in record.ring if event.actor == path][-RECENT:]
        return ActorDetail(**shown, stack=self._root.kernel.stack_of(actor), recent=recent)

    async def send(self, caller: Caller, path: str, text: str) -> None:
        """Write to an LLM agent at work, which reads it before its next request to the model.

        Raises:
            UsageError: the text is empty, or too long.
            Conflict: it is no agent, or it is at its end.
        """
        caller.need("write:runs")
        actor = self._actor(caller, path)
        if not text.strip() or len(text) > LONGEST_TEXT:
            raise UsageError(f"a text for an agent has 1 to {LONGEST_TEXT} characters, this one {len(text)}")
        if not self._tree.talks(actor) or actor.stopping:
            raise Conflict(f"{path} is no LLM agent at work, so nobody would read this")
        await actor.ref.tell(PersonSays(text=text, by=caller.called))

    def pause(self, caller: Caller, path: str) -> bool:
        """Let an actor and all below it begin nothing new; False if it is paused already."""
        return census.pause(self._steered(caller, path))

    def resume(self, caller: Caller, path: str) -> bool:
        """Let it go on; False if it was not paused itself."""
        return census.resume(self._steered(caller, path))

    def cancel_actor(self, caller: Caller, path: str) -> bool:
        """Interrupt an actor of a run; False if it is at its end already."""
        actor = self._steered(caller, path)
        if actor.stopping:
            return False
        actor.interrupt()
        return True

    def _actor(self, caller: Caller, path: str) -> Actor:
        actor = self._tree.find(path)
        if actor is not None and path != "/":
            run = actor.stream.run
            if not run and caller.has("admin:runs"):
                return actor
            if run:
                check_owner(caller, self._runs.owner_of(run), run)
                return actor
        raise NotFound(f"there is no actor {path[:200]!r}; it may have ended")

    def _steered(self, caller: Caller, path: str) -> Actor:
        caller.need("write:runs")
        actor = self._actor(caller, path)
        if not actor.stream.run:
            raise Denied(f"{path} belongs to no run: all runs share it")
        return actor

    def _sees(self, caller: Caller, run: str) -> bool:
        return sees(caller, self._runs.owner_of(run))

    def _may_see(self, caller: Caller, run: str) -> bool:
        """Whether actors of this run are shown to the caller; "" stands for what all runs share."""
        return self._sees(caller, run) if run else caller.has("admin:runs")

    def _with_totals(self, actor: ActorInfo) -> ActorInfo:
        record: Record | None = self._runs.live.get(actor.run) if actor.kind == "run" else None
        if record is not None:
            info = record.info
            actor.input_tokens, actor.output_tokens, actor.cost = info.input_tokens, info.output_tokens, info.cost
        return actor
