"""Memory use of actors, estimated on request.

For an actor that runs a subprocess it is the resident memory of that process and its descendants. For any other actor
it is an estimate of the bytes that would be freed if the actor ended:

- the state that its body reports (`Actor.keeps`), with everything reachable from it
- its arguments, the locals of its body and of the calls it is suspended in, and its waiting mail, with everything that
  only they refer to. Reference counts decide that: an object counts once all its references have been found.

Not counted: objects that actors share (a client, a message that its sender holds), objects in reference cycles, memory
that C libraries allocate, and the 3.5 kB that each actor costs. Long collections are sampled, and at most `MOST`
objects of an actor are visited, so an estimate takes a fraction of a millisecond.
"""

from __future__ import annotations

import gc
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from math import inf
from time import perf_counter
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any, final

import msgspec
import trio

from .actor import Actor
from .introspection import find

if TYPE_CHECKING:
    from .root import Root

MOST = 200
"""Objects of one actor that are visited, not counting the parts of the last one."""

SAMPLE = 32
"""Items of a collection that are visited."""

GOOD_FOR = 2.0
"""Seconds for which an estimate is valid, at least."""

SHARE = 0.1
"""Largest share of the event loop's time for new estimates; if they take more, estimates stay valid for longer."""

SLICE = 0.002
"""Seconds of measuring between two checkpoints."""

_LEAVES = (str, bytes, bytearray, int, float, type(None))
_CODE = (type, ModuleType, FunctionType, BuiltinFunctionType, MethodType)
_NOT_HELD = (*_CODE, Actor, trio.lowlevel.Task, trio.CancelScope)


@final
class Memory:
    """Memory estimates of the actors of one root, cached by path."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._known: dict[str, tuple[int, float, int]] = {}  # path -> (bytes, time of measurement, pid or 0)
        self._cost = 0.0  # seconds per estimate, as a moving average
        self._many = 1000  # size of `_known` at which entries of ended actors are removed

    def of(self, actor: Actor) -> int:
        """Return the last estimate in bytes; 0 if there is none."""
        return self._known.get(actor.path, (0,))[0]

    async def measure(self, actors: Iterable[Actor]) -> None:
        """Measure the given actors that live and have no recent estimate.

        Subprocesses are measured in a thread; the other estimates run in the caller's task, with checkpoints.
        """
        tasks = {actor: task for task, actor in self._root.tasks.items()}
        processes: dict[Actor, int] = {}
        began = before = perf_counter()
        for actor in list(actors):
            pid = self._root.pid_of(actor.path)
            _, at, known_pid = self._known.get(actor.path, (0, -inf, 0))
            now = trio.current_time()
            if actor.end is not None or (now - at < self._good_for and pid == known_pid):
                continue
            if pid:
                processes[actor] = pid
                continue
            self._known[actor.path] = held_by(actor, tasks.get(actor)), now, 0
            now = perf_counter()
            self._cost += (now - before - self._cost) / 16
            if now - began > SLICE:
                await trio.lowlevel.checkpoint()
                began = now = perf_counter()
            before = now
        if processes:
            used = await trio.to_thread.run_sync(memory_of, list(processes.values()), abandon_on_cancel=True)
            now = trio.current_time()
            self._known.update((actor.path, (used.get(pid, 0), now, pid)) for actor, pid in processes.items())
        if len(self._known) > self._many:
            self._known = {path: known for path, known in self._known.items() if find(self._root, path) is not None}
            self._many = 2 * len(self._known) + 1000

    @property
    def _good_for(self) -> float:
        return max(GOOD_FOR, len(self._known) * self._cost / SHARE)


def memory_of(pids: Iterable[int]) -> dict[int, int]:
    """Return the resident bytes of these processes, each with its descendants; ended processes are omitted."""
    import psutil

    children: dict[int, list[psutil.Process]] = {}
    alive: dict[int, psutil.Process] = {}
    for process in psutil.process_iter(["ppid"]):  # one scan for all of them
        alive[process.pid] = process
        children.setdefault(process.info["ppid"], []).append(process)

    def of(pid: int) -> int:
        tree, seen, used = [alive[pid]], {pid}, 0
        for process in tree:
            tree += [each for each in children.get(process.pid, ()) if each.pid not in seen]
            seen.update(each.pid for each in tree)
            with suppress(psutil.Error):
                used += int(process.memory_info().rss)
        return used

    return {pid: of(pid) for pid in pids if pid in alive}


def held_by(actor: Actor, task: trio.lowlevel.Task | None = None) -> int:
    """Estimate the bytes that this actor holds; its body runs in `task`."""
    known: dict[int, _Met] = {}
    size = _walk(actor.keeps.remembers(), known, alone=False) if actor.keeps is not None else 0.0
    return int(size + _walk(_roots(actor, task), known, alone=True))


def _roots(actor: Actor, task: trio.lowlevel.Task | None) -> Iterator[object]:
    yield actor.args
    if not isinstance(actor.body, FunctionType):  # a method with its object, a `partial`
        yield actor.body
    yield from filter(None, (actor.mailbox.mail, actor.mailbox.signals))
    call = task.coro.cr_await if task is not None else None  # the first call of a pooled task is the body (`scheduler`)
    if call is not None:
        yield call


class _Met(msgspec.Struct, gc=False):
    """A visited object.

    Attributes:
        weight: number of objects that it represents, if it was sampled.
        references: references to it that were found.
        counted: True once its size was added.
    """

    thing: Any
    weight: float
    references: int = 0
    counted: bool = False


def _walk(things: Iterable[object], known: dict[int, _Met], *, alone: bool) -> float:
    """Return the bytes of these objects and of everything reachable (`alone`: only through them)."""
    total, left = 0.0, MOST
    waiting = deque(known.setdefault(id(thing), _Met(thing, 1.0)) for thing in things)
    while waiting:
        holder = waiting.popleft()
        if holder.counted:
            continue
        holder.counted = True
        total += holder.weight * _size(holder.thing)
        left -= 1
        if left < 0:
            continue
        parts, each = _parts(holder.thing)
        met = [known.setdefault(id(part), _Met(part, holder.weight * each)) for part in parts]
        parts.clear()  # this list would count as a reference to its items in `_is_alone`
        for entry in met:
            entry.references += 1
        waiting += [entry for entry in met if not entry.counted and (_is_alone(entry) if alone else _is_held(entry))]
    return total


def _size(thing: Any) -> int:
    if isinstance(thing, msgspec.Raw):  # `sys.getsizeof` misreads a pointer of it as a length
        return msgspec.Raw.__basicsize__ + memoryview(thing).nbytes
    return sys.getsizeof(thing, 0)


def _is_held(entry: _Met) -> bool:
    return not isinstance(entry.thing, _NOT_HELD)


def _is_alone(entry: _Met) -> bool:
    """Return whether all references were found, except references from its entry and this call."""
    return entry.references >= sys.getrefcount(entry.thing) - 2


def _parts(thing: Any) -> tuple[list[Any], float]:
    """Return the objects that this one refers to, or a sample of them, and the number that each represents."""
    if isinstance(thing, _LEAVES):
        return [], 1.0
    if isinstance(thing, msgspec.Struct):  # the garbage collector does not track all of them
        return [getattr(thing, field) for field in thing.__struct_fields__], 1.0
    if isinstance(thing, list):
        parts = list.__getitem__(thing, slice(None, None, len(thing) // SAMPLE + 1))
    elif isinstance(thing, tuple):
        parts = list(tuple.__getitem__(thing, slice(None, None, len(thing) // SAMPLE + 1)))
    elif isinstance(thing, dict):
        parts = _sample(part for item in dict.items(thing) for part in item)
        return parts, 2 * len(thing) / max(1, len(parts))
    elif isinstance(thing, set | frozenset | deque):
        parts = _sample(thing)
    else:
        return gc.get_referents(thing), 1.0
    return parts, len(thing) / max(1, len(parts))


def _sample(parts: Iterable[Any]) -> list[Any]:
    try:
        return list(islice(parts, 2 * SAMPLE))
    except RuntimeError:  # another thread modifies it
        return []
