"""The process that tidies up after us when we can't, and the look at `/proc` that it shares with us.

However the host dies (SIGKILL, the OOM killer, `os._exit`, a crash in C), another process has to end what it started.
`PR_SET_PDEATHSIG` is no answer: it is bound to the *thread* that forked, and trio retires idle threads after ten
seconds. So the first subprocess of a root starts this file as a script of its own,

    python -I -S guardian.py <pid of the host> <token of the root>

in its own session, with INT, TERM and HUP blocked by the host, and with a SEQPACKET socket to the host
as its stdin. One packet is one line, each answered by `ok`:

    group <pid> <start>     the session (and group) of this leader is the host's; <start> guards against pid reuse
    forget <pid>            that session is proven empty
    bye                     the host has seen to everything; leave

When the socket reaches its end, or the host's pidfd says it is dead (a forked copy of the host may hold the
socket open), it kills: every registered session, everything that carries the root's token in its environment
(see `spawn.py`), the whole sessions of those, and all their descendants; again and again until three looks in
a row find nothing. All of them are stopped before the first is killed: what is stopped does not fork. The token is
known from the start, thus before any exec: a child whose `group` line the host did not live to send is found all the
same.

This file imports nothing of the package, and of the standard library only what starts fast: `signal` alone
would cost 10 ms.
"""

from __future__ import annotations

import errno
import os
import select
import sys
import time

COOKIE = b"CALLBOARD_COOKIE="
KILL, STOP = 9, 19
HALTED = (b"T", b"t", b"Z", b"X")
LISTINGS = 10
SETTLED = 2.0
QUIET_LOOKS = 3
LOOK_EVERY = 0.02
HUNT_AT_MOST = 60.0


# --- who is alive, and whose ------------------------------------------------------------------------------


class Seen:
    """One process as `/proc` showed it.

    Attributes:
        pid, parent, group, session: its ids.
        start: when it began, in clock ticks since boot: with the pid, an identity that is never reused.
        threads: how many it has. Of a process whose main thread has exited, `/proc` shows state Z for the whole.
        dead: its last thread has ended, and it only waits to be reaped.
        tokens: what its cookie holds, empty if it has none or belongs to another user.
    """

    __slots__ = ("dead", "group", "parent", "pid", "session", "start", "state", "threads", "tokens")

    def __init__(self, pid: int, stat: bytes) -> None:
        # The second field is the program's name in brackets, and may itself hold brackets and blanks.
        fields = stat[stat.rindex(b")") + 2 :].split()
        self.pid = pid
        self.state, self.threads = fields[0], int(fields[17])
        self.dead = self.state in (b"Z", b"X") and self.threads <= 1
        self.parent, self.group, self.session = int(fields[1]), int(fields[2]), int(fields[3])
        self.start = int(fields[19])
        self.tokens: frozenset[bytes] = frozenset()


def look(pid: int) -> Seen | None:
    """This process, without its tokens; None if there is none. `OSError` if we have too many files open to look."""
    stat = _read(f"/proc/{pid}/stat")
    return Seen(pid, stat) if stat else None


def family(known: dict[int, int]) -> list[Seen]:
    """Return the living among `known` (pid -> start) and all their living descendants.

    Reads the kernel's lists of children, so the cost is about 60 microseconds for each of them, however many others
    the machine runs. A list is complete only if its process is stopped.

    Raises:
        OSError: too many files are open, or the kernel has no such lists (`CONFIG_PROC_CHILDREN`).
    """
    found: dict[int, Seen] = {}
    waiting: list[tuple[int, int]] = []
    for pid, start in known.items():
        seen = look(pid)
        if seen is not None and seen.start == start and not seen.dead:
            found[pid] = seen
            waiting.append((pid, seen.threads))
    while waiting:
        parent, threads = waiting.pop()
        for pid in _children(parent, threads):
            seen = None if pid in found else look(pid)
            if seen is not None and seen.parent == parent and not seen.dead:  # else its pid is another's by now
                found[pid] = seen
                waiting.append((pid, seen.threads))
    return list(found.values())


def is_halted(seen: Seen) -> bool:
    """Return True if this process runs no more code: all of its threads are stopped, or have ended.

    A signal that stops a process has no effect on a fork that the kernel has begun. It is over when this is true.

    Raises:
        OSError: too many files are open.
    """
    now = look(seen.pid)
    if now is None or now.start != seen.start or now.dead:
        return True
    if now.threads <= 1:
        return now.state in HALTED
    stats = [_read(f"/proc/{seen.pid}/task/{thread}/stat") for thread in _threads(seen.pid)]
    return all(stat is None or Seen(seen.pid, stat).state in HALTED for stat in stats)


def kill(seen: Seen, number: int) -> None:
    """Signal exactly this process, not one that got its pid since."""
    try:
        now = look(seen.pid)
        if now is not None and now.start == seen.start:
            os.kill(seen.pid, number)
    except OSError:
        return  # gone between the look and the signal, another user's, or we have too many files open


def freeze(new: list[Seen], host_session: int) -> None:
    """Stop these, and at once the whole groups they are in, so that none of them forks any more.

    The kernel stops a group in one step, also those of its members that a look has not shown yet. The group of a
    session of ours is ours; the first member that is stopped keeps the group's number from being given away.
    """
    groups: set[int] = set()
    for seen in new:
        if seen.group in groups:
            continue
        kill(seen, STOP)
        if seen.session in (0, host_session):
            continue
        try:
            if os.getpgid(seen.pid) == seen.group:
                os.killpg(seen.group, STOP)
                groups.add(seen.group)
        except OSError:
            continue  # gone meanwhile


class Strangers:
    """Processes that have nothing to do with us, and so never will: they are not read again.

    Only a descendant of ours can come to carry our token, to be in a session of ours or to have a parent of ours. So a
    process that is none, and is past the moment between its fork and its exec, is a stranger for good. It is known
    again by the inode of its directory in `/proc`, which the listing holds anyway: the next process that gets
    its pid has another. A look then costs what *our* processes cost, beside 1 to 2 microseconds for each stranger.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, int]] = {}  # pid -> inode, start

    def __contains__(self, pid: object) -> bool:
        return pid in self._known

    def start_of(self, pid: int) -> int | None:
        """The start time of a known stranger; None for others."""
        known = self._known.get(pid)
        return known[1] if known else None

    def keep(self, listed: dict[int, int]) -> None:
        """Forget all but those that are listed (pid -> inode) with the same number."""
        self._known = {pid: known for pid, known in self._known.items() if listed.get(pid) == known[0]}

    def learn(self, census: Census, ours: set[int], host: int) -> None:
        """Mark each process of the census that is not `ours`, the host or a descendant of these as a stranger."""
        if host == 1 or len(set(census.inodes.values())) < len(census.inodes):
            return  # the orphans of the whole container are ours to reap; or inodes aren't unique here
        near = {host, *ours}
        grew = True
        while grew:
            below = {pid for pid, seen in census.seen.items() if seen.parent in near} - near
            near |= below
            grew = bool(below)
        settled = (time.clock_gettime(time.CLOCK_BOOTTIME) - SETTLED) * os.sysconf("SC_CLK_TCK")
        for pid, seen in census.seen.items():
            if pid not in near and seen.start < settled and pid in census.inodes:
                self._known[pid] = (census.inodes[pid], seen.start)


class Census:
    """All live processes at one moment that may be ours, by pid. Costs about 30 microseconds for each of them.

    Args:
        strangers: processes that are left out. None reads every process.
        seize: a process with one of these tokens is stopped at sight, so it can't fork while others are read.

    Raises `OSError` if there are too many files open to look.
    """

    def __init__(self, strangers: Strangers | None = None, seize: frozenset[bytes] = frozenset()) -> None:
        self.seen: dict[int, Seen] = {}
        self._seize = seize
        self.inodes = _pids()
        self._strangers = strangers or Strangers()
        self._strangers.keep(self.inodes)
        self._blank: list[Seen] = []
        # Who forks while we look, and ends before its turn, leaves a child that the first listing lacks.
        listed = self.inodes
        for _ in range(LISTINGS):
            new = [pid for pid in reversed(listed) if pid not in self.seen and pid not in self._strangers]
            if not sum([self._visit(pid) for pid in new]):
                break
            listed = _pids()
        # In the middle of an exec the environment is empty for a moment; so it is in kernel threads, for good.
        for seen in self._blank:
            seen.tokens = _tokens(seen) or frozenset()

    def _visit(self, pid: int) -> bool:
        seen = look(pid)
        if seen is None:
            return False
        self.seen[pid] = seen
        tokens = frozenset() if seen.dead else _tokens(seen)
        if tokens is None:
            self._blank.append(seen)
        else:
            seen.tokens = tokens
            if self._seize & tokens:
                kill(seen, STOP)
        return True

    def belonging(self, token: bytes, known: dict[int, int], spare: int) -> list[Seen]:
        """Those that carry `token`, those known, all in the session or group of one, and all their descendants.

        The dead among them are included.

        Args:
            token: of a root or of a single process.
            known: pid -> start of processes that are ours, dead or alive.
            spare: the host's pid, never part of the answer, nor is its session or the caller.
        """
        host = self.seen.get(spare)
        foreign = {0, host.session if host else 0}  # 0: led from outside of our pid namespace
        sessions = {pid for pid, start in known.items() if self._is(pid, start)}
        found: dict[int, Seen] = {}
        grew = True
        while grew:
            grew = False
            for pid, seen in self.seen.items():
                if pid in found or pid in (spare, os.getpid()):
                    continue
                ours = pid in sessions or seen.session in sessions or seen.group in sessions
                if ours or seen.parent in found or token in seen.tokens:
                    found[pid] = seen
                    grew = True
                    if seen.session not in foreign:
                        sessions.add(seen.session)
        return list(found.values())

    def _is(self, pid: int, start: int) -> bool:
        # A leader that is gone leaves its number to its session: no new process gets it while a member lives.
        leader = self.seen.get(pid)
        began = self._strangers.start_of(pid) if leader is None else leader.start
        return began is None or began == start


def _pids() -> dict[int, int]:
    with os.scandir("/proc") as entries:
        return {int(entry.name): entry.inode() for entry in entries if entry.name.isdigit()}


def _threads(pid: int) -> list[str]:
    try:
        with os.scandir(f"/proc/{pid}/task") as entries:
            return [entry.name for entry in entries]
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise
        return []


def _children(pid: int, threads: int) -> list[int]:
    lists = [_read(f"/proc/{pid}/task/{thread}/children") for thread in ([str(pid)] if threads <= 1 else _threads(pid))]
    if None in lists and _read("/proc/thread-self/children") is None:
        raise OSError(errno.ENOSYS, "the kernel does not list children")
    return [int(child) for children in lists if children for child in children.split()]


def _tokens(seen: Seen) -> frozenset[bytes] | None:
    """What its cookie holds; None if its whole environment is empty."""
    environment = _read(f"/proc/{seen.pid}/environ")
    if environment == b"" and seen.state == b"Z":  # the main thread has exited: ask the others
        parts = [_read(f"/proc/{seen.pid}/task/{thread}/environ") for thread in _threads(seen.pid)]
        environment = max(parts, key=lambda part: len(part or b""), default=None)
    if environment == b"":
        return None
    for variable in (environment or b"").split(b"\0"):
        if variable.startswith(COOKIE):
            return frozenset(variable[len(COOKIE) :].split(b":"))
    return frozenset()


def _read(path: str) -> bytes | None:
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise  # no proof that the process is gone
        return None  # it is gone, or another user's
    parts = []
    try:
        while part := os.read(fd, 65536):
            parts.append(part)
    except OSError:
        return None  # it ended while we read
    finally:
        os.close(fd)
    return b"".join(parts)


# --- the script -------------------------------------------------------------------------------------------


def main(host: int, token: bytes) -> None:
    """Serve the host until it says `bye` or is dead; then hunt."""
    leaders: dict[int, int] = {}
    try:
        session = os.getsid(host)
    except OSError:
        session = 0  # it is gone already
    if not _serve(host, leaders):
        _hunt(host, session, token, leaders)


def _serve(host: int, leaders: dict[int, int]) -> bool:
    """Keep the list of leaders; True if the host said `bye`, False if it died."""
    poll = select.poll()
    poll.register(0, select.POLLIN)
    try:
        poll.register(os.pidfd_open(host), select.POLLIN)
    except OSError:
        host = os.getppid()  # no pidfds here: the socket alone must tell
    if os.getppid() != host:
        return False
    while True:
        ready = {fd for fd, _ in poll.poll()}
        if 0 not in ready:
            return False
        try:
            line = os.read(0, 4096).split()
            if not line or line[0] == b"bye":
                return bool(line)
            _note(line, leaders)
            os.write(0, b"ok")
        except OSError:
            return False  # the host died between its line and our answer


def _note(line: list[bytes], leaders: dict[int, int]) -> None:
    if line[0] == b"group":
        leaders[int(line[1])] = int(line[2])
    elif line[0] == b"forget":
        leaders.pop(int(line[1]), None)


def _hunt(host: int, session: int, token: bytes, leaders: dict[int, int]) -> None:
    quiet = 0
    until = time.monotonic() + HUNT_AT_MOST
    strangers = Strangers()
    frozen: set[tuple[int, int]] = set()
    for pid, start in leaders.items():
        _stop_group(pid, start)
    while quiet < QUIET_LOOKS and time.monotonic() < until:
        try:
            alive = _prey(Census(strangers, frozenset((token,))), strangers, host, token, leaders)
            quiet = 0 if alive else quiet + 1
        except OSError:
            alive = []  # the whole machine is out of files
        new = [seen for seen in alive if (seen.pid, seen.start) not in frozen]
        if new:
            freeze(new, session)
            frozen.update((seen.pid, seen.start) for seen in new)
            continue  # the next look sees what they started before that
        for seen in alive:
            kill(seen, KILL)
        time.sleep(LOOK_EVERY)


def _stop_group(leader: int, start: int) -> None:
    try:
        seen = look(leader)
        if seen is not None and seen.start == start:
            os.killpg(leader, STOP)
    except OSError:
        return  # gone meanwhile, or the machine is out of files: the look that follows finds the rest


def _prey(census: Census, strangers: Strangers, host: int, token: bytes, leaders: dict[int, int]) -> list[Seen]:
    found = census.belonging(token, leaders, host)
    strangers.learn(census, {seen.pid for seen in found}, host)
    return [seen for seen in found if not seen.dead]


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2].encode())
