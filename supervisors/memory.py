"""What actors take of memory, measured on request: they keep no account of it.

For the actor of a process it is the resident memory of that process and of all below it. For an actor within our
process it is an estimate of the bytes that would be free if it ended:

- what it remembers, as far as it says so (`Actor.keeps`), with all that hangs on it
- its arguments, the locals of its body and of the calls in which this waits, and the mail that waits for it, each as
  long as nothing else refers to it, with what only they hold; reference counts tell that

What actors share (a client, a message that its sender keeps) counts for none of them, nor do objects in a circle of
references, what C libraries allocate for themselves, and the 3.5 kB that each actor costs. Of a long collection a
sample is looked at, and of an actor `MOST` objects: so it takes a fraction of a millisecond, whatever it holds.
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
from typing import TYPE_CHECKING, Any, Protocol, final

import msgspec
import trio

from .census import find
from .life import Life

if TYPE_CHECKING:
    from .root import Root

MOST = 200
"""Objects of one actor that are looked at, besides the parts of the last one."""

SAMPLE = 32
"""Items of a collection that are looked at."""

GOOD_FOR = 2.0
"""Seconds for which a figure is good, at least."""

SHARE = 0.1
"""Of the event loop's time, what measuring again takes at most; else figures are good for longer."""

SLICE = 0.002
"""Seconds that measuring takes in a row, before others get a look in."""

_LEAVES = (str, bytes, bytearray, int, float, type(None))
_CODE = (type, ModuleType, FunctionType, BuiltinFunctionType, MethodType)
_NOT_HELD = (*_CODE, Life, trio.lowlevel.Task, trio.CancelScope)


class Remembers(Protocol):
    """What has a state of an actor in hand."""

    def remembers(self) -> Iterable[object]:
        """The objects of the state, in any order."""


@final
class Memory:
    """The memory of the actors of one root."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._known: dict[str, tuple[int, float, int]] = {}  # by path: bytes, measured when, pid or 0
        self._cost = 0.0  # seconds that an actor takes to be measured, as of late
        self._many = 1000  # figures from which on those of actors that have ended are thrown away

    def of(self, actor: Life) -> int:
        """Bytes, as last measured; 0 if that was never."""
        return self._known.get(actor.path, (0,))[0]

    async def measure(self, actors: Iterable[Life]) -> None:
        """Bring the figures of these up to date, as far as they are too old."""
        tasks = {actor: task for task, actor in self._root.tasks.items()}
        processes: dict[Life, int] = {}
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
    """Bytes of memory of these processes, each with those below it; those that are gone are left out."""
    import psutil

    below: dict[int, list[psutil.Process]] = {}
    there: dict[int, psutil.Process] = {}
    for process in psutil.process_iter(["ppid"]):  # one look for all of them
        there[process.pid] = process
        below.setdefault(process.info["ppid"], []).append(process)

    def of(pid: int) -> int:
        tree, seen, used = [there[pid]], {pid}, 0
        for process in tree:
            tree += [each for each in below.get(process.pid, ()) if each.pid not in seen]
            seen.update(each.pid for each in tree)
            with suppress(psutil.Error):
                used += int(process.memory_info().rss)
        return used

    return {pid: of(pid) for pid in pids if pid in there}


def held_by(actor: Life, task: trio.lowlevel.Task | None = None) -> int:
    """Bytes that this actor holds, whose body runs in `task`; see the module."""
    known: dict[int, _Met] = {}
    size = _walk(actor.keeps.remembers(), known, alone=False) if actor.keeps is not None else 0.0
    return int(size + _walk(_hands(actor, task), known, alone=True))


def _hands(actor: Life, task: trio.lowlevel.Task | None) -> Iterator[object]:
    yield actor.args
    if not isinstance(actor.body, FunctionType):  # a method with its object, a `partial`
        yield actor.body
    yield from filter(None, (actor.mailbox.mail, actor.mailbox.signals))
    call = task.coro.cr_await if task is not None else None  # in a task, see `tasks`, the first call is the body's
    if call is not None:
        yield call


class _Met(msgspec.Struct, gc=False):
    """An object, what it stands for in a sample, how many references to it were met, and whether it was counted."""

    thing: Any
    weight: float
    references: int = 0
    counted: bool = False


def _walk(things: Iterable[object], known: dict[int, _Met], *, alone: bool) -> float:
    """Bytes of these things and of what hangs on them, with `alone` only on them."""
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
        parts.clear()  # else it holds what is asked below who holds it
        for entry in met:
            entry.references += 1
        waiting += [entry for entry in met if not entry.counted and (_is_alone(entry) if alone else _is_held(entry))]
    return total


def _size(thing: Any) -> int:
    if isinstance(thing, msgspec.Raw):  # of which `sys.getsizeof` reads a pointer as a length
        return msgspec.Raw.__basicsize__ + memoryview(thing).nbytes
    return sys.getsizeof(thing, 0)


def _is_held(entry: _Met) -> bool:
    return not isinstance(entry.thing, _NOT_HELD)


def _is_alone(entry: _Met) -> bool:
    """Whether all references to it were met, but for that of its entry and that of the call."""
    return entry.references >= sys.getrefcount(entry.thing) - 2


def _parts(thing: Any) -> tuple[list[Any], float]:
    """Objects that this one refers to, or a sample of them, and how many each stands for."""
    if isinstance(thing, _LEAVES):
        return [], 1.0
    if isinstance(thing, msgspec.Struct):  # the garbage collector does not know all of them
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
    except RuntimeError:  # a thread changes it meanwhile
        return []
