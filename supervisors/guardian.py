"""Guardian and reapers: the processes that start all subprocesses, and end them with all their descendants.

**The problem.** A program that is stopped must be gone with everything that it has started: children, their children,
and daemons that have left its session, its process group and its environment. That must hold even if this program is
killed with SIGKILL in the same moment.

**What does not work.** Killing the process group: a descendant leaves it with `setsid`. A mark in the environment that
is searched for in `/proc`: a descendant clears its environment. Walking the tree of parents: an orphan becomes a child
of init and is lost. A parent-death signal on each process: it is not inherited, and it follows the *thread* that
forked.

**What this module does.** Linux makes the nearest living ancestor that is a *child subreaper* (prctl(2)) the parent of
an orphan, and a program can't change that. So each process of Callboard has a parent of its own, a **reaper**, which is
one:

    host (trio, any number of threads)
      └─ guardian                 one for each root; a subreaper; forks the reapers
           ├─ reaper              one for each process; a subreaper
           │    └─ the process that was asked for
           │         └─ its children, their children, daemons that left session, group, and environment, ...
           └─ reaper

Each orphan below a reaper becomes its child. So the kernel itself says when everything has ended: `waitpid` fails with
ECHILD. Until then the reaper repeats: stop all descendants that it finds in `/proc`, until it finds no new one; then
kill them. ECHILD makes that sound, not the stop; stopping keeps a fork bomb from growing while it is being read.

**Deaths**, in any order:

    the host dies or closes a reaper's socket       the reaper ends its descendants, then itself
    the guardian dies or is stopped                 the host starts another one; reapers do not need it, and continue it
    a reaper dies                                   the guardian adopts its descendants and ends them
    the host dies while a reaper is stopped         the guardian continues it, kills it after `GRACE`, ends the rest

A host is dead when its pidfd says so, or when its socket is at the end. Both are needed: a forked copy of the host may
hold the socket open, and not every kernel has pidfds.

**Limits.** A program that asks a service manager (systemd, cron, docker) to start something is not followed. If host,
guardian and reapers die in the same moment, only descendants of bubblewrap end (`--die-with-parent`).

**Why a separate program.** The guardian has one thread, so it can fork safely, and its children may bind their life to
it (a parent-death signal follows the *thread* that forked, and threads of a trio program come and go). It imports
nothing of the package, and of the standard library only modules that load fast: `signal` alone would cost 10 ms.

**Invariants.** A reaper runs one process at a time. It reports `empty` only after ECHILD, and only then may start the
next one.

**Messages** are packets of a SEQPACKET socket. The guardian reads `reaper` (with one end of a new socket, answered by
the reaper's pid), `settle PID` (answered by `yes` if this reaper is dead with all its descendants, else by `no`), and
`bye`. A reaper reads and sends marshalled tuples:

    start, request      started, pid | failed, errno, stage | invalid, text      (`StartRequest`, with descriptors)
    signal, n           -                               sent to the process group of the process
    watch               crowd, number                   sent when it has `CROWD` more descendants than at first
    members             members, pids                   the process, while it lives, and its descendants
    ask                 -                               SIGTERM to all descendants
    kill                -                               end all
                        exited, status, empty           once, when the process has ended; True if no descendant is left
                        empty, number                   once, later, when no descendant is left; number of those ended

A reaper that is `empty` can start the next process. Its process is started by `posix_spawn`, which does not copy the
reaper's memory. Restrictions of a process (`StartRequest.restrictions`) are put on the thread that starts it, as Linux
keeps them per thread: a thread for this one process, which lives as long as the process, since its parent-death signal
would come when the thread ends. A second thread, without the restrictions, performs the calls that the process may only
make through a broker (`syscall_broker`).
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # the C part of `signal`, of which typeshed has no stub
import _socket
import _thread
import ctypes
import errno
import fcntl
import gc
import marshal
import os
import select
import struct
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, NoReturn, TypedDict

    from . import syscall_broker

    class Restrictions(TypedDict):
        """Restrictions of a process, see `confinement`. Descriptors are given as positions among those sent."""

        network: int | None
        gains_nothing: bool
        capabilities: tuple[int, ...] | None
        ruleset: int | None
        filter: bytes
        broker: syscall_broker.Brokered | None

    class StartRequest(TypedDict):
        """Request to start a process.

        Its packet carries these descriptors: stdin, stdout, stderr, the descriptors for `targets` and for the
        restrictions, and the working directory if `cwd` is None.

        Attributes:
            targets: the numbers under which the process inherits the descriptors after the first three.
        """

        argv: list[bytes]
        env: dict[bytes, bytes]
        cwd: bytes | None
        targets: list[int]
        restrictions: Restrictions | None


GRACE = 1.0
"""Seconds that reapers have after the death of their host, before the guardian kills them and ends the rest."""

CROWD = 16
"""Processes that a program may start after it was asked to end; with more it loses its grace periods."""

AGAIN = 0.01
"""Seconds between two scans of descendants that are being ended or counted."""

LARGEST = 65536
"""Largest packet in bytes. A larger request is None in the packet and stored in a memfd, the first descriptor."""

MOST_DESCRIPTORS = 250

_PR_SET_NAME, _PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 15, 36, 37
_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 22, 2
_PR_SET_NO_NEW_PRIVS, _PR_CAPBSET_DROP, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 38, 24, 47, 4
_CAPABILITY_VERSION_3 = 0x20080522
_CLONE_NEWNET = 0x40000000
_LANDLOCK_RESTRICT_SELF = 446

_ALL_SIGNALS = tuple(sorted(_signal.valid_signals() - {_signal.SIGKILL, _signal.SIGSTOP}))
_DEAF_TO = (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP, _signal.SIGPIPE, _signal.SIGTSTP, _signal.SIGQUIT)

_libc = ctypes.CDLL(None, use_errno=True)


# --- descendants ------------------------------------------------------------------------------------------


class ProcessInfo:
    """A process as read from `/proc`.

    Attributes:
        pid, parent: its pid and that of its parent.
        start: start time in clock ticks since boot; together with the pid an identity that is never reused.
        dead: True if its last thread has ended and it only waits to be reaped.
    """

    __slots__ = ("dead", "parent", "pid", "start")

    def __init__(self, pid: int, stat: bytes) -> None:
        # The second field is the program's name in brackets, and may itself hold brackets and blanks.
        fields = stat[stat.rindex(b")") + 2 :].split()
        self.pid = pid
        # The state of a process whose main thread has exited while others run is Z, too.
        self.dead = fields[0] in (b"Z", b"X") and int(fields[17]) <= 1
        self.parent, self.start = int(fields[1]), int(fields[19])


def read_process(pid: int) -> ProcessInfo | None:
    """Read a process from `/proc`; None if it does not exist.

    Raises:
        OSError: too many files are open to read it.
    """
    stat = _read(f"/proc/{pid}/stat")
    return ProcessInfo(pid, stat) if stat else None


def descendants(top: int) -> list[ProcessInfo]:
    """Return the living processes below this one, parents before their children.

    Costs about 60 microseconds for each. The list is complete only if the processes are stopped.

    Raises:
        OSError: too many files are open to read `/proc`, or it does not exist.
    """
    found: dict[int, ProcessInfo] = {}
    waiting = [top]
    while waiting:
        parent = waiting.pop()
        for pid in _children(parent):
            seen = None if pid in found else read_process(pid)
            if seen is not None and seen.parent == parent:  # else the pid was reused in the meantime
                waiting.append(pid)
                if not seen.dead:
                    found[pid] = seen
    return list(found.values())


def send(seen: ProcessInfo, number: int) -> None:
    """Signal exactly this process, not a later one with the same pid. No effect if it has ended."""
    try:
        handle = os.pidfd_open(seen.pid)
    except OSError:
        handle = -1
    try:
        now = read_process(seen.pid)
        if now is None or now.start != seen.start:
            return
        if handle >= 0:
            _signal.pidfd_send_signal(handle, number)
        else:
            os.kill(seen.pid, number)
    except OSError:
        return  # it has ended, or belongs to another user
    finally:
        if handle >= 0:
            os.close(handle)


def mechanisms() -> dict[str, bool]:
    """Return which mechanisms for ending descendants this kernel has: `subreaper`, `children`, `pidfd`.

    docs/kernel.md describes what each of them guarantees, and the fallback without it.
    """
    subreaper = _libc.prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(ctypes.c_int()), 0, 0, 0) == 0
    try:
        os.close(os.pidfd_open(os.getpid()))
        pidfd = True
    except OSError:
        pidfd = False
    return {"subreaper": subreaper, "children": _read("/proc/thread-self/children") is not None, "pidfd": pidfd}


def _children(pid: int) -> list[int]:
    children: list[int] = []
    for thread in _threads(pid):
        listed = _read(f"/proc/{pid}/task/{thread}/children")
        if listed is not None:
            children += map(int, listed.split())
        elif _read("/proc/thread-self/children") is None:
            return _by_parent(pid)
    return children


def _by_parent(parent: int) -> list[int]:
    """Return the children of a process where the kernel keeps no lists of them (`CONFIG_PROC_CHILDREN`)."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - as above
    return [pid for pid in pids if (seen := read_process(pid)) is not None and seen.parent == parent]


def _threads(pid: int) -> list[str]:
    try:
        return os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - nothing but what starts fast
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise
        return []


def _read(path: str) -> bytes | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise  # not a proof that the process has ended
        return None  # it has ended, or belongs to another user
    parts = []
    try:
        while part := os.read(fd, 65536):
            parts.append(part)
    except OSError:
        return None  # it ended while it was read
    finally:
        os.close(fd)
    return b"".join(parts)


def end_all(spared: Iterable[int] = ()) -> list[ProcessInfo]:
    """Stop and kill all descendants of this process, and return them.

    Args:
        spared: pids of children that are not touched, nor their descendants.

    Raises:
        OSError: too many files are open to read `/proc`; the descendants found before are stopped.
    """
    stopped: dict[int, ProcessInfo] = {}
    while new := [seen for seen in _below(spared) if seen.pid not in stopped]:
        for seen in new:
            send(seen, _signal.SIGSTOP)
            stopped[seen.pid] = seen
    for seen in reversed(_below(spared)):  # children first, so that no running process becomes an orphan
        send(seen, _signal.SIGKILL)
        stopped[seen.pid] = seen
    return list(stopped.values())


def _below(spared: Iterable[int]) -> list[ProcessInfo]:
    spared_all = set(spared)
    found = descendants(os.getpid())
    for seen in found:
        if seen.parent in spared_all:
            spared_all.add(seen.pid)
    return [seen for seen in found if seen.pid not in spared_all]


# --- a reaper ---------------------------------------------------------------------------------------------


class Reaper:
    """Starts one process at a time for its host, and ends it with all its descendants.

    Args:
        link: the socket to the host.
        host: a pidfd of the host; None if the kernel has no pidfds.
    """

    def __init__(self, link: _socket.socket, host: int | None) -> None:
        self._link = link
        self._host = host
        self._wake = wake_on_children()
        self._poll = poll_of(link.fileno(), self._wake, host)
        self._guardian = os.getppid()
        self._leader = 0
        self._exited, self._status = True, 0
        self._ending = False
        self._at_first: int | None = None
        self._swept: set[int] = set()
        self._thread: _thread.LockType | None = None

    def run(self) -> NoReturn:
        """Serve the host until it is dead or closes the socket, then end all descendants."""
        while self._serve():
            pass
        self._ending = True
        wake = poll_of(self._wake)  # the other descriptors stay ready from now on, so polling them would spin
        while self._leader:
            self._advance()
            if wake.poll(AGAIN * 1000):
                drain(self._wake)
        if os.getppid() == self._guardian:
            _kill(self._guardian, _signal.SIGCONT)  # if it was stopped (SIGSTOP), it would remain for ever
        os._exit(0)

    def _serve(self) -> bool:
        """Wait for one event and handle it; False if the host is gone."""
        busy = self._leader and (self._ending or self._at_first is not None)
        ready = {fd for fd, _ in self._poll.poll(AGAIN * 1000 if busy else None)}
        if self._host in ready:
            return False
        if self._link.fileno() in ready and not self._obey():
            return False
        if self._wake in ready:
            drain(self._wake)
        self._advance()
        return True

    def _advance(self) -> None:
        """Reap ended children, report to the host, and continue to end or count the others."""
        if not self._leader:
            return
        had_exited = self._exited
        is_empty = self._reap()
        if self._exited and not had_exited:
            self._report("exited", self._status, is_empty and not self._swept)
        if is_empty:
            if had_exited or self._swept:
                self._report("empty", len(self._swept))
            self._leader, self._ending, self._at_first = 0, False, None
            if self._thread is not None:
                self._thread.release()
                self._thread = None
        elif self._ending:
            self._end_all()
        elif self._at_first is not None:
            self._count()

    def _reap(self) -> bool:
        """Reap each child that has ended; True if no child is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if not pid:
                return False
            if pid == self._leader and not self._exited:
                self._exited, self._status = True, os.waitstatus_to_exitcode(status)

    def _end_all(self) -> None:
        try:
            self._swept.update(seen.pid for seen in end_all() if seen.pid != self._leader)
        except OSError:
            return  # the machine is out of files: the next attempt follows in a moment

    def _below(self) -> list[ProcessInfo]:
        try:
            return _below(())
        except OSError:
            return []  # the machine is out of files

    def _count(self) -> None:
        now = len(self._below())
        assert self._at_first is not None
        if now - self._at_first > CROWD:
            self._at_first = None
            for seen in self._below():
                send(seen, _signal.SIGSTOP)
            self._report("crowd", now)
        else:
            self._at_first = min(self._at_first, now)

    def _obey(self) -> bool:
        """Read one packet and execute its order; False at the end of the socket."""
        try:
            packet, fds = receive(self._link)
        except OSError:
            return False
        if not packet:
            return False
        order, *rest = marshal.loads(packet)  # noqa: S302 - from the host
        if order == "start":
            self._start(rest[0], fds)
            return True
        if order == "signal" and not self._exited:
            self._signal_group(rest[0])
        elif order == "watch":
            self._at_first = len(self._below())
        elif order == "members":
            self._report("members", [seen.pid for seen in self._below()])
        elif order == "ask":
            for seen in self._below():
                self._swept.add(seen.pid)
                send(seen, _signal.SIGTERM)
                send(seen, _signal.SIGCONT)
        elif order == "kill":
            self._ending = bool(self._leader)
        return True

    def _signal_group(self, number: int) -> None:
        try:
            os.killpg(self._leader, number)  # the leader is not reaped yet, so its pid still identifies its group
        except OSError:
            return  # all members run as another user

    def _start(self, request: StartRequest | None, fds: list[int]) -> None:
        try:
            if request is None:
                request = _from_file(fds.pop(0))
            pid, self._thread = _start(request, fds)
        except SpawnRefused as refused:
            self._report("failed", refused.number, refused.stage)
        except ValueError as error:
            self._report("invalid", str(error))
        else:
            self._leader, self._exited, self._ending = pid, False, False
            self._swept.clear()
            self._report("started", pid)
        finally:
            for fd in fds:
                os.close(fd)

    def _report(self, *message: Any) -> None:
        try:
            self._link.send(marshal.dumps(message))
        except OSError:
            return  # the host is gone, which the next poll shows


def _from_file(fd: int) -> StartRequest:
    with open(fd, "rb") as file:
        request: StartRequest = marshal.load(file)  # noqa: S302 - from the host
    return request


class SpawnRefused(Exception):
    """The kernel refused to start a process.

    Attributes:
        number: its `errno`.
        stage: the step that was refused: `start`, `cwd`, or `restrictions`.
    """

    def __init__(self, number: int, stage: str) -> None:
        super().__init__(number, stage)
        self.number = number
        self.stage = stage


def _start(request: StartRequest, fds: list[int]) -> tuple[int, _thread.LockType | None]:
    """Start the process; return its pid, and the lock that ends the thread which started it."""
    try:
        if request["cwd"] is None:
            os.fchdir(fds[-1])
        else:
            os.chdir(request["cwd"])
    except OSError as error:
        raise SpawnRefused(error.errno or 0, "cwd") from error
    try:
        restrictions = request["restrictions"]
        return (_spawn(request, fds), None) if restrictions is None else _in_a_thread(request, restrictions, fds)
    finally:
        os.chdir("/")


def _in_a_thread(request: StartRequest, restrictions: Restrictions, fds: list[int]) -> tuple[int, _thread.LockType]:
    result: list[tuple[int, int | None] | Exception] = []
    done, over = _thread.allocate_lock(), _thread.allocate_lock()
    done.acquire()
    over.acquire()

    brokered = restrictions["broker"]
    try:
        broker = None if brokered is None else syscall_broker.Broker(brokered)
    except OSError as error:  # a directory that the broker opens does not exist any more
        raise SpawnRefused(error.errno or 0, "restrictions") from error

    def start() -> None:
        try:
            listener = restrict(restrictions, fds)
            result.append((_spawn(request, fds), listener))
        except Exception as error:  # noqa: BLE001 - raised below, in the thread that waits
            result.append(error)
        done.release()
        over.acquire()

    _thread.start_new_thread(start, ())
    done.acquire()
    listener = None if isinstance(result[0], Exception) else result[0][1]
    if broker is not None and listener is None:
        broker.close()
    if isinstance(result[0], Exception):
        over.release()
        raise result[0]
    pid = result[0][0]
    if broker is not None and listener is not None:
        _thread.start_new_thread(broker.run, (listener,))
    return pid, over


def _spawn(request: StartRequest, fds: list[int]) -> int:
    targets = [0, 1, 2, *request["targets"]]
    actions: list[Any] = []
    moved: list[int] = []
    try:
        above = max(targets) + 1
        for fd, target in zip(fds, targets, strict=False):
            if fd < above and len(targets) > 3:  # or an earlier DUP2 could overwrite it
                fd = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, above)
                moved.append(fd)
            actions.append((os.POSIX_SPAWN_DUP2, fd, target))
        return _search(request, actions)
    except OSError as error:
        raise SpawnRefused(error.errno or 0, "start") from error
    finally:
        for fd in moved:
            os.close(fd)


def _search(request: StartRequest, actions: list[Any]) -> int:
    """Start the program; without a slash in its name, search the PATH of its environment, as exec does."""
    argv, env = request["argv"], request["env"]
    program = argv[0]
    if b"/" in program:
        return _posix_spawn(program, argv, env, actions)
    refused = 0
    for directory in env.get(b"PATH", os.fsencode(os.defpath)).split(b":"):
        path = (directory or b".") + b"/" + program
        try:
            os.stat(path)  # noqa: PTH116 - as above
            return _posix_spawn(path, argv, env, actions)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                refused = refused or error.errno or 0
    raise OSError(refused or errno.ENOENT, os.strerror(refused or errno.ENOENT))


def _posix_spawn(path: bytes, argv: list[bytes], env: dict[bytes, bytes], actions: list[Any]) -> int:
    return os.posix_spawn(path, argv, env, file_actions=actions, setsid=True, setsigmask=(), setsigdef=_ALL_SIGNALS)


# --- restrictions of the thread that starts a process -----------------------------------------------------


def restrict(restrictions: Restrictions, fds: list[int]) -> int | None:
    """Apply the restrictions to the calling thread, irrevocably; return the listener of its broker, if it has one.

    Raises:
        SpawnRefused: the kernel refuses one of them.
    """
    if restrictions["network"] is not None:
        _checked(_libc.setns(fds[restrictions["network"]], _CLONE_NEWNET))
    if restrictions["gains_nothing"]:
        _checked(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    if restrictions["capabilities"] is not None:
        _drop_capabilities(restrictions["capabilities"])
    if restrictions["ruleset"] is not None:
        _checked(_libc.syscall(_LANDLOCK_RESTRICT_SELF, ctypes.c_int(fds[restrictions["ruleset"]]), ctypes.c_uint(0)))
    if restrictions["filter"]:
        _filter_calls(restrictions["filter"])
    if restrictions["broker"] is None:
        return None
    try:
        return syscall_broker.install(restrictions["broker"])
    except OSError as error:
        raise SpawnRefused(error.errno or 0, "restrictions") from error


def _drop_capabilities(kept: tuple[int, ...]) -> None:
    header = ctypes.create_string_buffer(struct.pack("=Ii", _CAPABILITY_VERSION_3, 0))
    data = ctypes.create_string_buffer(24)
    _checked(_libc.capget(header, data))
    _, low, _, _, high, _ = struct.unpack("=6I", data.raw[:24])
    if not low and not high:
        return
    number = 0
    # Fails for a number that the kernel does not know; and without SETPCAP, where `capset` alone suffices.
    while number in kept or _libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0) == 0:
        number += 1
    _libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    low &= sum(1 << number for number in kept)
    _checked(_libc.capset(header, ctypes.create_string_buffer(struct.pack("=6I", low, low, 0, 0, 0, 0))))


def _filter_calls(code: bytes) -> None:
    buffer = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("@HP", len(code) // 8, ctypes.addressof(buffer))
    _checked(
        _libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.create_string_buffer(program, len(program)), 0, 0)
    )


def _checked(result: int) -> None:
    if result < 0:
        raise SpawnRefused(ctypes.get_errno(), "restrictions")


# --- the guardian -----------------------------------------------------------------------------------------


class Guardian:
    """Forks reapers for its host, and ends the descendants of a reaper that was killed."""

    def __init__(self, link: _socket.socket, host: int | None) -> None:
        self._link = link
        self._host = host
        self._wake = wake_on_children()
        self._poll = poll_of(link.fileno(), self._wake, host)
        self._reapers: set[int] = set()
        self._orphans = False

    def run(self) -> None:
        """Serve the host until it says `bye` or is dead; then wait until no reaper is left."""
        while self._serve():
            pass
        until = time.monotonic() + GRACE
        for pid in self._reapers:
            _kill(pid, _signal.SIGCONT)
        while not self._reap():
            if time.monotonic() > until:
                for pid in self._reapers:
                    _kill(pid, _signal.SIGKILL)
            self._end_orphans()
            self._wait(AGAIN)

    def _serve(self) -> bool:
        ready = self._wait(AGAIN if self._orphans else None)
        if self._host in ready:
            return False
        if self._link.fileno() in ready and not self._obey():
            return False
        self._reap()
        if self._orphans:
            self._end_orphans()
        return True

    def _end_orphans(self) -> None:
        """Kill descendants of dead reapers; `_orphans` is True afterwards if some may still live."""
        try:
            self._orphans = bool(end_all(self._reapers))
        except OSError:
            self._orphans = True  # the machine is out of files: the next attempt follows in a moment

    def _wait(self, seconds: float | None) -> set[int]:
        ready = {fd for fd, _ in self._poll.poll(None if seconds is None else seconds * 1000)}
        if self._wake in ready:
            drain(self._wake)
        return ready

    def _obey(self) -> bool:
        """Read one packet and execute its order; False at the end of the socket, or for `bye`."""
        try:
            packet, fds = receive(self._link)
            if packet == b"reaper":
                self._link.send(str(self._fork(fds[0])).encode())
            elif packet.startswith(b"settle "):
                self._reap()
                is_dead = int(packet.split()[1]) not in self._reapers
                self._end_orphans()
                self._link.send(b"yes" if is_dead and not self._orphans else b"no")
            else:
                return False
        except OSError:
            return False  # the host died between its order and the answer
        return True

    def _fork(self, fd: int) -> int:
        """Fork a reaper that serves this socket; return its pid, or minus an errno. The descriptor is closed here."""
        try:
            pid = os.fork()
        except OSError as error:
            pid = -(error.errno or errno.EAGAIN)
        if not pid:
            _become_reaper(_socket.socket(fileno=fd), self._host)
        os.close(fd)
        if pid > 0:
            self._reapers.add(pid)
        return pid

    def _reap(self) -> bool:
        """Reap each child that has ended; True if no child is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if not pid:
                return False
            if pid in self._reapers:
                self._reapers.remove(pid)
                self._orphans = self._orphans or status != 0


def _become_reaper(link: _socket.socket, host: int | None) -> NoReturn:
    try:
        _set_title(f"reaper of {sys.argv[1]}", "reaper")
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        os.dup2(null, 0)
        kept = {0, 1, 2, link.fileno(), host}
        for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - as above
            if int(name) not in kept:
                try:
                    os.close(int(name))
                except OSError:
                    continue  # the descriptor of the listing itself, closed already
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        Reaper(link, host).run()
    finally:
        os._exit(1)


def _kill(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except OSError:
        return  # it has ended


def receive(link: _socket.socket) -> tuple[bytes, list[int]]:
    """Read one packet with its descriptors; empty at the end."""
    packet, data, _, _ = link.recvmsg(LARGEST, _socket.CMSG_SPACE(4 * MOST_DESCRIPTORS), _socket.MSG_CMSG_CLOEXEC)
    fds: list[int] = []
    for level, kind, content in data:
        if (level, kind) == (_socket.SOL_SOCKET, _socket.SCM_RIGHTS):
            fds += struct.unpack(f"{len(content) // 4}i", content[: len(content) // 4 * 4])
    return packet, fds


def poll_of(*fds: int | None) -> select.poll:
    """Return a poll object for the descriptors that are not None."""
    made = select.poll()
    for fd in fds:
        if fd is not None:
            made.register(fd, select.POLLIN)
    return made


def wake_on_children() -> int:
    """Return a descriptor that becomes readable when a child has ended."""
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    _signal.signal(_signal.SIGCHLD, _no_more)
    _signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    return reader


def _no_more(*_: object) -> None:
    """Handler of SIGCHLD: the signal only wakes the poll."""


def drain(fd: int) -> None:
    """Read everything from a non-blocking descriptor."""
    try:
        while os.read(fd, 4096):
            pass
    except BlockingIOError:
        return


def _set_title(title: str, name: str) -> None:
    """Set the command line and the name that `ps` shows for this process."""
    stat = _read("/proc/self/stat") or b""
    fields = stat[stat.rfind(b")") + 2 :].split()
    if len(fields) > 46:
        start, end = int(fields[45]), int(fields[46])
        ctypes.memmove(start, title.encode()[: end - start - 1].ljust(end - start, b"\0"), end - start)
    _libc.prctl(_PR_SET_NAME, ctypes.c_char_p(name.encode()), 0, 0, 0)


def main(host: int) -> None:
    """Run as the guardian of the process `host`, whose socket is stdin."""
    gc.disable()
    gc.freeze()  # a collection in a forked reaper would copy the shared memory pages first
    for number in _DEAF_TO:
        _signal.signal(number, _signal.SIG_IGN)
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    _libc.prctl(_PR_SET_NAME, ctypes.c_char_p(b"guardian"), 0, 0, 0)
    try:
        handle = os.pidfd_open(host) if os.getppid() == host else None
    except OSError:
        handle = None  # no pidfds: the end of the socket alone must tell
    if os.getppid() == host:
        Guardian(_socket.socket(fileno=0), handle).run()


if __name__ == "__main__":
    # Appended and removed again: this directory has modules (signals) whose names must not hide other modules.
    sys.path.append(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120 - nothing but what starts fast
    import syscall_broker  # type: ignore[import-not-found, no-redef] # found by the path above

    sys.path.pop()
    main(int(sys.argv[1]))
