"""What a root knows about its subprocesses: who lives, who guards them, how strays are found.

Made at the first subprocess of a root, closed by the root when its tree is down. One per root; two roots in one
process have two, with a token and a guardian each.
"""

from __future__ import annotations

import ctypes
import os
import signal
from typing import TYPE_CHECKING, final

import msgspec
import trio

from ..protocol.kernel.events import Warned
from .forks import ForkWatch
from .guardian import Census, Seen, Strangers, family, freeze, is_halted, kill
from .guardian_link import GuardianLink
from .spawn import AT_ONCE, POLL, new_token, wait_for_death

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from .child import Child
    from .root import Root

PR_SET_CHILD_SUBREAPER = 36

HALT_WITHIN = 0.1
"""Seconds for SIGSTOP to take effect. A process that hangs in the kernel takes longer; it is not waited for."""

HALT_POLL = 0.001

UNCLAIMED = 60.0
"""Seconds after which an unreaped dead child that this root did not start is taken for a stray."""


@final
class Processes:
    """The subprocesses of one root.

    Attributes:
        token: the root's token, in the cookie of every child.
        live: pid of the leader -> child, from its fork until its session is proven empty.
        pids: path of the actor -> pid of the leader, for those who look at the tree.
        link: to the guardian.
        limiter: bounds the threads that fork and that look at `/proc`.
        hurry: set when graces are to be skipped.
        strangers: processes that looks skip.
        forks: watches those who end.
    """

    def __init__(self, root: Root) -> None:
        self.token = new_token()
        self.live: dict[int, Child] = {}
        self.pids: dict[str, int] = {}
        self.limiter = trio.CapacityLimiter(AT_ONCE)
        self.hurry = root.hurry
        self.link = GuardianLink(self.token, self.start_task, self.warn, self.limiter)
        self.forks = ForkWatch(self)
        self._root = root
        self._round = _Round()
        self._looking = False
        self.strangers = Strangers()
        self._primed = False
        self._ours: set[tuple[int, int]] = set()
        self._unclaimed: dict[tuple[int, int], float] = {}
        if root.own_signals:
            become_subreaper()

    async def close(self) -> None:
        """Prove that nothing is left and let the guardian go; if that can't be proven in time, leave it to hunt.

        The caller bounds the time. The tree is down, so usually there is nothing to do but to look.
        """
        try:
            await self.kill_all(lambda: self.strays(self.token, self._leaders, seize=True))
            for child in list(self.live.values()):
                child.bury()
            await self.link.dismiss()
        finally:
            self.link.abandon()

    async def strays(self, token: str, known: dict[int, int], *, seize: bool = False) -> list[Seen]:
        """The living that belong to this token or to those known (pid -> start), as of now; see `Census.belonging`.

        Args:
            seize: those that carry the token are stopped at sight.
        """
        return self.living(await self.census(token.encode() if seize else None), token, known)

    def living(self, census: Census, token: str, known: dict[int, int]) -> list[Seen]:
        """As `strays`, in this look."""
        found = census.belonging(token.encode(), known, os.getpid())
        self._ours.update((seen.pid, seen.start) for seen in found if seen.pid not in self.live)
        return [seen for seen in found if not seen.dead]

    def family(self, known: dict[int, int]) -> list[Seen]:
        """The living among `known` (pid -> start) and their descendants, at once; see `guardian.family`."""
        found = family(known)
        self._ours.update((seen.pid, seen.start) for seen in found if seen.pid not in self.live)
        return found

    def tell(self, strays: list[Seen], number: signal.Signals) -> None:
        """Signal these."""
        for seen in strays:
            kill(seen, number)

    async def kill_all(self, look: Callable[[], Awaitable[list[Seen]]]) -> None:
        """End those that `look` finds, until it finds none.

        All are stopped before the first is killed: each that is killed while others run makes room for another fork,
        and wakes a parent that may start the next. `look` had better seize them. The caller bounds the time.
        """
        frozen: set[tuple[int, int]] = set()
        while left := await look():
            new = [seen for seen in left if (seen.pid, seen.start) not in frozen]
            if new:
                await self.halt(new)
                frozen.update((seen.pid, seen.start) for seen in new)
            else:
                self.tell(left, signal.SIGKILL)
                await all_dead(left)

    async def halt(self, new: list[Seen]) -> None:
        """Stop these and their groups, and wait until none of them runs.

        SIGSTOP does not undo a fork that the kernel has begun. A look that begins after that fork is over shows the
        child; one that begins after the signal may not.
        """
        freeze(new, os.getsid(0))
        with trio.move_on_after(HALT_WITHIN):
            while not self._halted(new):  # noqa: ASYNC110 - the kernel reports a stop to the parent only
                await trio.sleep(HALT_POLL)

    def _halted(self, new: list[Seen]) -> bool:
        try:
            return all(is_halted(seen) for seen in new)
        except OSError:
            return False  # too many files are open to tell

    def prime(self) -> None:
        """Look at all strangers once, before the first process ends, so that no end has to wait for that."""
        if not self._primed:
            self._primed = True
            self.start_task(self.census)

    async def census(self, seize: bytes | None = None) -> Census:
        """A look at `/proc` that begins after this call. Those who ask meanwhile share the next one.

        Args:
            seize: a process with this token is stopped at sight.
        """
        mine = self._round
        mine.wanted = True
        if seize is not None:
            mine.seize.add(seize)
        if not self._looking:
            self._looking = True
            self.start_task(self._look_around)
        await mine.over.wait()
        assert mine.census is not None
        return mine.census

    async def _look_around(self) -> None:
        """Take one look after the other, for as long as they are wanted.

        In a task of its own: a look can't be cancelled, and on a busy machine it may take longer than the graces of
        those who wait for it, so these wait for an event.
        """
        try:
            while self._round.wanted:
                mine, self._round = self._round, _Round()
                mine.census = await self._look(frozenset(mine.seize))
                self._reap(mine.census)
                self._learn(mine.census)
                mine.over.set()
        finally:
            self._looking = False

    async def _look(self, seize: frozenset[bytes]) -> Census:
        while True:
            try:
                return await trio.to_thread.run_sync(Census, self.strangers, seize, limiter=self.limiter)
            except (OSError, MemoryError, RuntimeError):  # RuntimeError: no thread could be started
                await trio.sleep(POLL)  # too many files are open, or no memory; who waits for this has a deadline

    @property
    def _leaders(self) -> dict[int, int]:
        return {pid: child.start for pid, child in self.live.items()}

    def _learn(self, census: Census) -> None:
        found = census.belonging(self.token.encode(), self._leaders, os.getpid())
        ours = {seen.pid for seen in found}
        ours.update(pid for pid, _ in self._ours)
        for child in self.live.values():
            ours.update(child.known)
        self.strangers.learn(census, ours, os.getpid())

    def warn(self, code: str, message: str) -> None:
        """Tell the world on the kernel's event stream."""
        self._root.actor.emit(Warned(code=code, message=message))

    def start_task(self, body: Callable[[], Awaitable[object]]) -> None:
        """Run a task that may be cancelled when the tree is down."""
        self._root.nursery.start_soon(body)

    def _reap(self, census: Census) -> None:
        """Take the status of dead strays that were given to us as subreaper (or as pid 1).

        Never `waitpid(-1)`, which would steal from trio and from other libraries' subprocesses. A dead child is
        taken if it was seen among our strays; or if it is neither in our session nor leads one, since then this
        program did not fork it and does not wait for it; or if it leads one and stays unreaped for a minute.
        """
        us, session, now = os.getpid(), os.getsid(0), trio.current_time()
        dead = [seen for seen in census.seen.values() if seen.dead and seen.parent == us and seen.session != session]
        unclaimed = {
            (seen.pid, seen.start): self._unclaimed.get((seen.pid, seen.start), now)
            for seen in dead
            if seen.pid not in self.live and seen.pid != self.link.pid
        }
        for seen in dead:
            since = unclaimed.get((seen.pid, seen.start))
            if since is None:
                continue
            if seen.session != seen.pid or (seen.pid, seen.start) in self._ours or now - since >= UNCLAIMED:
                reap(seen.pid)
        self._unclaimed = unclaimed
        self._ours = {(pid, start) for pid, start in self._ours if pid in census.seen}


class _Round(msgspec.Struct, eq=False):
    wanted: bool = False
    over: trio.Event = msgspec.field(default_factory=trio.Event)
    seize: set[bytes] = set()
    census: Census | None = None


async def all_dead(strays: list[Seen]) -> None:
    """Wait until none of these lives."""
    for seen in strays:
        await wait_for_death(seen.pid)


def reap(pid: int) -> None:
    """Take the status of this one dead child, if it is ours and not reaped yet."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return


def become_subreaper() -> None:
    """Have orphans below us given to us instead of to init, so that they stay in reach and are reaped.

    It holds for the whole process and for good, so only a root that owns the process asks for it (`signals=True`).
    Where the kernel has no such thing, nothing is lost but the reaping: strays are found without it.
    """
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
