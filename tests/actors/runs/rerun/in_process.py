"""The great run of `durable/everything`, played in the test's own process, with what its deciders were told on tape;
and replays of runs."""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import trio

import callboard
from callboard.actors.engine.driver import Decider, recorder
from callboard.actors.runs.rerun.fork import stored_rows
from callboard.actors.runs.rerun.replay import Replayed, replay
from callboard.actors.work.journal.actor_journal import Scopes
from callboard.actors.work.journal.fork_prefix import Placed
from callboard.protocol.effects import Effect
from callboard.protocol.events import Event, encode
from callboard.supervisors.escalation import remembers

sys.path.insert(0, str(Path(__file__).parents[1] / "durable"))

from everything import KilledRun
from playing import Person

LEFT_OUT = {"heard", "plan", "record", "_plan", "_node", "_talk", "_reach", "_tools", "_unlisted", "_checks"}
"""What is settled about a decider, what it works out anew, and the record that all nodes of a graph share."""


SEEDS = range(10)
"""Of trio's scheduler."""


async def again(killed_run: KilledRun, run: str = "run-1", **options: Any) -> tuple[Replayed, list[Event]]:
    """A replay, in a thread as under any other event loop; and its events."""
    events: list[Event] = []
    play = partial(replay, run, config_dir=killed_run.config, on_event=events.append, **options)
    return await trio.to_thread.run_sync(play), events


async def again_in_any_order(killed_run: KilledRun, run: str = "run-1") -> tuple[Replayed, list[Event]]:
    """Replays that have trio run its tasks in other orders, and are the same byte for byte: the last."""
    dice = trio._core._run._r
    before = dice.getstate()
    seen = set()
    try:
        for seed in SEEDS:
            dice.seed(seed)
            replayed, events = await again(killed_run, run)
            seen.add((b"\n".join(map(encode, events)), json.dumps(replayed.outcome.to_wire()), replayed.differences))
    finally:
        dice.setstate(before)
    assert len(seen) == 1
    return replayed, events


class Tape:
    """What one decider was told.

    Attributes:
        request: what it began with.
        afresh: makes another one like it.
        states: its state, by the number of the run's rows then.
    """

    def __init__(self, decider: Decider, afresh: Callable[[], Decider]) -> None:
        self.decider = decider
        self.afresh = afresh
        self.request: Any = None
        self.states: dict[int, Any] = {}

    def wrote(self, message: Any, _: list[Effect]) -> None:
        scopes = remembers.get()
        assert isinstance(scopes, Scopes)
        self.request = message if self.request is None else self.request
        self.states.setdefault(scopes.run.rows.rows, state_of(self.decider))


@contextmanager
def tapes() -> Iterator[list[Tape]]:
    """All deciders of the block are on tape."""
    made: list[Tape] = []

    def tape(decider: Decider, afresh: Callable[[], Decider]) -> Tape:
        made.append(Tape(decider, afresh))
        return made[-1]

    token = recorder.set(tape)
    try:
        yield made
    finally:
        recorder.reset(token)


def state_of(thing: Any) -> Any:
    """What an object holds, as values that can be compared."""
    if isinstance(thing, dict):
        return {str(key): state_of(value) for key, value in thing.items()}
    if isinstance(thing, list | tuple):
        return [state_of(each) for each in thing]
    if isinstance(thing, set | frozenset):
        return sorted(map(repr, thing))
    if isinstance(thing, BaseException):
        return repr(thing)
    if isinstance(thing, msgspec.Struct):
        return state_of(msgspec.structs.asdict(thing))
    if type(thing).__module__.startswith("callboard") and hasattr(thing, "__dict__"):
        return {name: state_of(value) for name, value in vars(thing).items() if name not in LEFT_OUT}
    return copy.deepcopy(thing) if isinstance(thing, str | int | float | bytes | None) else repr(type(thing))


class InProcessRun(KilledRun):
    """Runs that are executed in the process of the tests."""

    async def begin(self, run: str = "run-1") -> callboard.Outcome:
        """The great run, to its end."""
        async with callboard.Root(config_dir=self.config) as root:
            with root.questions.attach(Person(root, str(self.log))):
                return await callboard.run("g", "hello", durable=True, id=run, yes=True)

    async def fork(self, at: int | str, **options: Any) -> callboard.Outcome:
        """A fork of it, to its end."""
        async with callboard.Root(config_dir=self.config) as root:
            with root.questions.attach(Person(root, str(self.log))):
                return await callboard.fork("run-1", at=at, **options)

    def read(self, run: str = "run-1") -> list[Placed]:
        """The rows of a run."""
        return stored_rows(self.journal, run)[0]
