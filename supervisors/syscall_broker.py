"""System calls that a reaper performs for sandboxed processes: connections to sockets, and changes of files' metadata.

Two things can't be refused by the kernel with rules that the sandbox has: a connection to a Unix socket by its path (a
read-only mount does not stop connect(2), and Landlock knows sockets' names only in kernels to come), and, where only
Landlock holds a process, chmod, chown, utime, and setxattr. A seccomp filter sees the numbers among the arguments of a
call, but neither the address nor the path that a pointer leads to.

So the filter suspends these calls and notifies the reaper (seccomp_unotify(2)). It does not suffice to read the
arguments and let the call continue: another thread of the program can replace the path, or the descriptor, between the
check and the call. Nothing continues here. The reaper copies the arguments, opens the object itself (`O_PATH`, within
the root directory of the program), looks where that object is, and applies the call to the descriptor that it has
looked at. The program only receives the result. For connect(2) the socket itself is fetched (pidfd_getfd(2)), for all
families, since the filter can't tell a TCP socket from a Unix one; an address of another family is passed on as it was
copied, and a Unix socket accepts no such address.

The broker also opens up directories that are read-only for a process, for files of some names only (`Guarded`: the top
of a git directory, where lock files are made and renamed). Calls that make, replace, or remove files are suspended; the
broker performs calls with an allowed name, in a directory that it has opened before the process began. All others do
continue: the kernel looks at their arguments again, and whatever another thread has made of them, the mount is
read-only. Here the boundary is the mount, and the broker only gives. What git would trust in these files, HEAD and the
submodules in the index, is looked at in a copy, and the copy becomes the file.

Datagram sockets are not covered, since sendmsg(2) can name an address with each message: the filter of the sandbox
refuses to create Unix sockets of that type, socket pairs too.

A program can notice the broker in two ways: the peer of a connection has the pid of the reaper, and paths through links
of `/proc` (except `/proc/self/fd/N`) are refused.

This file is part of the guardian's program (see `guardian`): it imports nothing of the package, and only what starts
fast. Each process with a broker has one thread of its reaper for it; a connection that blocks has a thread of its own.
"""

from __future__ import annotations

import _thread
import ctypes
import errno
import fcntl
import os
import select
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypedDict

    class Guarded(TypedDict):
        """A read-only directory with exceptions; see `confinement.Guarded`."""

        directory: bytes
        names: Sequence[bytes]
        heads: Sequence[bytes]
        trees: Sequence[bytes]
        nurseries: Sequence[bytes]
        object_name: int

    class Brokered(TypedDict):
        """System calls performed for a process; see `confinement.Brokered`."""

        filter: bytes
        without: bytes
        places: Sequence[tuple[bytes, bool]]
        abstract: bool
        guarded: Sequence[Guarded]
        unchangeable: Sequence[bytes]


CONNECT: dict[str, tuple[int, int | None]] = {"connect": (42, 203)}
METADATA: dict[str, tuple[int, int | None]] = {
    "chmod": (90, None),
    "fchmod": (91, 52),
    "chown": (92, None),
    "fchown": (93, 55),
    "lchown": (94, None),
    "utime": (132, None),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "utimes": (235, None),
    "fchownat": (260, 54),
    "futimesat": (261, None),
    "fchmodat": (268, 53),
    "utimensat": (280, 88),
    "fchmodat2": (452, 452),
}
"""Numbers of the calls on x86_64 and on aarch64, which lacks some."""

FILES: dict[str, tuple[int, int | None]] = {
    "open": (2, None),
    "rename": (82, None),
    "mkdir": (83, None),
    "rmdir": (84, None),
    "creat": (85, None),
    "unlink": (87, None),
    "openat": (257, 56),
    "mkdirat": (258, 34),
    "unlinkat": (263, 35),
    "renameat": (264, 38),
    "renameat2": (316, 276),
}
"""Calls that make, replace, or remove files; of those that open, only with `WRITING` among their flags."""

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT

_MACHINES = ("x86_64", "aarch64")
_SECCOMP = (317, 277)
_PIDFD_GETFD, _OPENAT2 = 438, 437

_SET_MODE_FILTER, _NEW_LISTENER, _WAIT_KILLABLE = 1, 1 << 3, 1 << 5
_RECEIVE, _SEND, _IS_VALID, _ADD_DESCRIPTOR = 0xC0502100, 0xC0182101, 0x40082102, 0x40182103
_CONTINUE = 1
_NOTIFICATION, _RESPONSE = struct.Struct("=QIIiIQ6Q"), struct.Struct("=Qqii")

_NO_MAGIC_LINKS, _NO_SYMLINKS, _BENEATH, _IN_ROOT = 0x02, 0x04, 0x08, 0x10
_AT_FDCWD, _AT_SYMLINK_NOFOLLOW, _AT_EMPTY_PATH, _AT_REMOVEDIR = -100, 0x100, 0x1000, 0x200
_OPENING = os.O_ACCMODE | os.O_CREAT | os.O_EXCL | os.O_TRUNC | os.O_APPEND | os.O_NONBLOCK | os.O_SYNC
_RENAMING = 1 | 2  # RENAME_NOREPLACE, RENAME_EXCHANGE
_AF_UNIX = 1
_PAGE = 4096
_LONGEST_ADDRESS, _LONGEST_PATH, _LONGEST_VALUE, _LONGEST_HEAD = 128, 4096, 65536, 4096
_INDEX, _LARGEST_INDEX = b"index", 1 << 29

_OWN_DESCRIPTORS = (b"/proc/self/fd/", b"/proc/thread-self/fd/", b"/dev/fd/")
"""glibc changes the mode of a descriptor by such a path where the kernel has no call for it."""

_ATTRIBUTES = (b"user.", b"system.posix_acl_")
"""Extended attributes that may be changed. Those of `security.` give privileges, and root's reaper could set them."""

_libc = ctypes.CDLL(None, use_errno=True)


def install(brokered: Brokered) -> int | None:
    """Put the filter on the calling thread; return the descriptor that notifications are read from.

    Returns:
        None where the kernel can't do it, or a filter outside has a listener (a container's), of which there can be
        only one. Then the calling thread has the filter `without`, which refuses the calls of a broker.

    Raises:
        OSError: the kernel takes neither filter.
    """
    # Probe for pidfd_getfd (Linux 5.6): it fails with EBADF where it exists, and the broker can't do without it.
    _libc.syscall(_PIDFD_GETFD, -1, 0, 0)
    if ctypes.get_errno() != errno.ENOSYS:
        # From 5.19 on a signal does not restart a call that the broker has begun to perform.
        for flags in (_NEW_LISTENER | _WAIT_KILLABLE, _NEW_LISTENER):
            listener = _filtered(brokered["filter"], flags)
            if listener >= 0:
                return listener
            # EINVAL: an older kernel that lacks a flag. Any other error is final (EBUSY: a container has the listener).
            if ctypes.get_errno() != errno.EINVAL:
                break
    if _filtered(brokered["without"], 0) < 0:
        raise OSError(ctypes.get_errno(), "seccomp")
    return None


def _filtered(code: bytes, flags: int) -> int:
    buffer = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("@HP", len(code) // 8, ctypes.addressof(buffer))
    # In variables of their own: the kernel reads both during the call, and Python must not free them before.
    kept = ctypes.create_string_buffer(program, len(program))
    number = _SECCOMP[_MACHINES.index(os.uname().machine)]
    listener: int = _libc.syscall(number, _SET_MODE_FILTER, ctypes.c_uint(flags), kept)
    if listener >= 0 and flags:
        fcntl.fcntl(listener, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
    return listener


class Broker:
    """Performs the calls of one process and its descendants, in a thread, until the last of them has ended.

    Args:
        brokered: what may be done. The longest of its places that an object is in decides.
    """

    def __init__(self, brokered: Brokered) -> None:
        self._listener = -1
        # Longest first, so that the first match is the most specific rule.
        self._places = sorted(brokered["places"], key=lambda place: -len(place[0]))
        self._abstract = brokered["abstract"]
        self._unchangeable = frozenset(brokered["unchangeable"])
        self._guarded = [_Guard(each) for each in sorted(brokered["guarded"], key=lambda each: -len(each["directory"]))]
        at = _MACHINES.index(os.uname().machine)
        self._names = {numbers[at]: name for name, numbers in (CONNECT | METADATA | FILES).items()}

    def close(self) -> None:
        """Close the descriptors of the guarded directories."""
        _close([guard.fd for guard in self._guarded])

    def run(self, listener: int) -> None:
        """Serve until no process has the filter any more.

        Args:
            listener: the descriptor of `install`, which is closed here.
        """
        self._listener = listener
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        try:
            while True:
                ((_, events),) = poll.poll()
                # POLLHUP alone: no process has the filter any more.
                if not events & select.POLLIN:
                    return
                self._serve()
        finally:
            os.close(self._listener)
            self.close()

    def _serve(self) -> None:
        buffer = bytearray(_NOTIFICATION.size)
        try:
            fcntl.ioctl(self._listener, _RECEIVE, buffer)
        except OSError:
            return  # the program was killed meanwhile
        id, tid, _, number, _, _, *arguments = _NOTIFICATION.unpack(buffer)
        name = self._names[number]
        if name in FILES:
            self._change_file(id, tid, name, arguments)
            return
        try:
            result = self._perform(id, tid, name, arguments)
        except OSError as error:
            result = error.errno or errno.EPERM
        except Exception:  # noqa: BLE001 - bad input of the program must not end the broker, and is refused
            result = errno.EPERM
        if result is not None:
            self._answer(id, result)

    def _answer(self, id: int, error: int, value: int = 0, flags: int = 0) -> None:
        try:
            fcntl.ioctl(self._listener, _SEND, _RESPONSE.pack(id, value, -error, flags))
        except OSError:
            return  # the program was killed meanwhile

    def _check_alive(self, id: int) -> None:
        """Refuse a call whose thread is gone: another program may have the same thread id now."""
        fcntl.ioctl(self._listener, _IS_VALID, struct.pack("=Q", id))

    def _perform(self, id: int, tid: int, name: str, arguments: list[int]) -> int | None:
        """Perform a call; return its errno, 0 for success, and None if another thread will answer."""
        if name == "connect":
            return self._connect(id, tid, arguments)
        change = _Change(tid, name, arguments)
        try:
            self._check_alive(id)
            if not self._is_ours(change.object) or self._is_unchangeable(change.object):
                return errno.EPERM
            change.apply()
        finally:
            os.close(change.object)
        return 0

    def _is_ours(self, fd: int) -> bool:
        path = os.readlink(b"/proc/self/fd/%d" % fd)  # noqa: PTH115 - nothing but what starts fast
        for place, allowed in self._places:
            if path == place or path.startswith(place.rstrip(b"/") + b"/"):
                return allowed
        return False

    def _change_file(self, id: int, tid: int, name: str, arguments: list[int]) -> None:
        """Perform a call for a name that a guard allows; let every other continue, to what its mount allows."""
        try:
            opened = self._try_to_change(id, tid, name, arguments)
        except _NotAllowed:
            # Safe although the program may change the arguments meanwhile: its mount decides, not this check.
            self._answer(id, 0, flags=_CONTINUE)
        except OSError as error:
            self._answer(id, error.errno or errno.EPERM)
        except Exception:  # noqa: BLE001 - bad input of the program must not end the broker; the kernel judges it
            self._answer(id, 0, flags=_CONTINUE)
        else:
            self._answer(id, 0, max(opened, 0))

    def _try_to_change(self, id: int, tid: int, name: str, arguments: list[int]) -> int:
        """Perform a call; return the program's new descriptor, -1 for none.

        Raises:
            _NotAllowed: it is not for a file that a guard allows.
            OSError: the kernel refuses.
        """
        at = name.endswith(("at", "at2")) and name != "creat"
        dirfd = _signed(arguments.pop(0)) if at else _AT_FDCWD
        guard, path = self._found(tid, dirfd, arguments[0])
        if name.startswith("rename"):
            other = _signed(arguments[1]) if at else _AT_FDCWD
            new_guard, new_path = self._found(tid, other, arguments[2 if at else 1])
            flags = arguments[3] & 0xFFFFFFFF if name == "renameat2" else 0
            # Between two guards, or with other flags: left to the mount, which decides about it.
            if guard is not new_guard or flags & ~_RENAMING:
                raise _NotAllowed
            self._check_alive(id)
            guard.rename(path, new_path, flags)
            return -1
        self._check_alive(id)
        if name.startswith(("open", "creat")):
            flags = os.O_CREAT | os.O_WRONLY | os.O_TRUNC if name == "creat" else _signed(arguments[1])
            # The broker's own umask must not apply: the file is the program's. Set-id bits are never given.
            mode = arguments[1 if name == "creat" else 2] & 0o777 & ~_umask(tid)
            fd = guard.open(path, flags, mode)
            try:
                kept = os.O_CLOEXEC & flags
                added = bytearray(struct.pack("=QIIII", id, 0, fd, 0, kept))
                added_as: int = fcntl.ioctl(self._listener, _ADD_DESCRIPTOR, added)
                return added_as
            finally:
                os.close(fd)
        if name.startswith("mkdir"):
            guard.make_directory(path, arguments[1] & 0o777 & ~_umask(tid))
        else:
            guard.remove(path, directory=name == "rmdir" or (at and bool(arguments[1] & _AT_REMOVEDIR)))
        return -1

    def _found(self, tid: int, dirfd: int, pointer: int) -> tuple[_Guard, bytes]:
        """Return the guard that allows a path, and the path within its directory.

        The path is taken as text. If links lead it elsewhere, the program changes a file that it may change.
        """
        path = _text(tid, pointer)
        if not path.startswith(b"/"):
            link = b"/proc/%d/cwd" % tid if dirfd == _AT_FDCWD else b"/proc/%d/fd/%d" % (tid, dirfd)
            path = os.readlink(link) + b"/" + path  # noqa: PTH115 - as above
        # As text, not by the file system: resolving links here would race with the program that makes them.
        path = os.path.normpath(path)
        for guard in self._guarded:
            if path.startswith(guard.prefix):
                within = path[len(guard.prefix) :]
                if guard.allows(within):
                    return guard, within
                break
        raise _NotAllowed

    def _is_unchangeable(self, fd: int) -> bool:
        return os.readlink(b"/proc/self/fd/%d" % fd) in self._unchangeable  # noqa: PTH115 - as above

    def _connect(self, id: int, tid: int, arguments: list[int]) -> int | None:
        fd, pointer, length = _signed(arguments[0]), arguments[1], _signed(arguments[2])
        if not 0 <= length <= _LONGEST_ADDRESS:
            return errno.EINVAL
        address = _read(tid, pointer, length)
        opened = []
        try:
            opened.append(_socket_of(tid, fd))
            if length > 2 and struct.unpack_from("=H", address)[0] == _AF_UNIX:
                path = address[2:].split(b"\0", 1)[0]
                if path:
                    opened.append(_open(tid, _AT_FDCWD, path, follow=True))
                    if not self._is_ours(opened[-1]):
                        return errno.EACCES
                    address = struct.pack("=H", _AF_UNIX) + b"/proc/self/fd/%d\0" % opened[-1]
                elif not self._abstract:
                    return errno.EACCES
            self._check_alive(id)
            if fcntl.fcntl(opened[0], fcntl.F_GETFL) & os.O_NONBLOCK:
                return _connected(opened[0], address)
            _thread.start_new_thread(self._connect_later, (id, opened, address))
            opened = []
            return None
        except RuntimeError:
            return errno.EAGAIN  # there are too many threads
        finally:
            _close(opened)

    def _connect_later(self, id: int, opened: list[int], address: bytes) -> None:
        try:
            self._answer(id, _connected(opened[0], address))
        finally:
            _close(opened)


class _NotAllowed(Exception):
    """The path of a call is not one that a guard allows."""


class _Guard:
    """A directory that is read-only for a process, in which files of some names are changed for it.

    Attributes:
        fd: the directory, opened before the process began: nothing that it renames leads the broker elsewhere.
        prefix: the path of its entries.
    """

    def __init__(self, guarded: Guarded) -> None:
        self.prefix = guarded["directory"] + b"/"
        self.fd = os.open(guarded["directory"], os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._names, self._trees, self._nurseries = guarded["names"], guarded["trees"], guarded["nurseries"]
        self._heads = guarded["heads"]
        self._object_name = guarded["object_name"]
        self._made: set[tuple[bytes, bytes]] = set()

    def allows(self, path: bytes) -> bool:
        """Return whether a path within the directory may be changed."""
        top, *below = path.split(b"/")
        if top in self._trees:
            return True
        if top in self._nurseries:
            return len(below) < 2 or (top, below[0]) in self._made
        return not below and (top in self._heads or any(_matches(top, name) for name in self._names))

    def open(self, path: bytes, flags: int, mode: int) -> int:
        """Open a regular file below the directory, without following links, and return its descriptor.

        Raises:
            OSError: it is not a regular file, or may only be replaced (HEAD, or the index for writing), or the kernel
                refuses.
        """
        if path in self._heads or (path == _INDEX and flags & (WRITING | os.O_TRUNC)):
            raise OSError(errno.EROFS, "it is only replaced")
        parent, name = self._parent(path)
        try:
            flags = flags & _OPENING | os.O_NOFOLLOW | os.O_CLOEXEC
            fd = _open_beneath(parent, name, flags, mode if flags & os.O_CREAT else 0)
        finally:
            os.close(parent)
        if os.fstat(fd).st_mode & 0o170000 != 0o100000:
            os.close(fd)
            raise OSError(errno.EPERM, "not a file")
        return fd

    def rename(self, path: bytes, new_path: bytes, flags: int) -> None:
        """Rename within the directory. HEAD and the index are replaced by a checked copy of the file instead.

        Raises:
            OSError: one of the names may not be changed, or the kernel refuses.
        """
        for each in (path, new_path):
            if each in (*self._trees, *self._nurseries) or self._is_nursed(each):
                raise OSError(errno.EROFS, "a directory that has its name for good")
        if new_path in (*self._heads, _INDEX) and not flags:
            self._replace(path, new_path)
            return
        if path in self._heads or new_path in self._heads or _INDEX in (path, new_path):
            raise OSError(errno.EROFS, "it is only replaced")
        parent, name = self._parent(path)
        new_parent = -1
        try:
            new_parent, new_name = self._parent(new_path)
            renamed = _libc.renameat2(parent, name, new_parent, new_name, ctypes.c_uint(flags))
            if renamed < 0:
                raise OSError(ctypes.get_errno(), "renameat2")
        finally:
            _close([fd for fd in (parent, new_parent) if fd >= 0])

    def _replace(self, path: bytes, new_path: bytes) -> None:
        """Replace a head or the index with a copy of a file: the program may still write to the file itself."""
        source = self.open(path, os.O_RDONLY, 0)
        try:
            most = _LARGEST_INDEX if new_path == _INDEX else _LONGEST_HEAD
            text, status = _contents(source, most), os.fstat(source)
        finally:
            os.close(source)
        if not (self._is_index(text) if new_path == _INDEX else _is_head(text)):
            raise OSError(errno.EROFS, "not what git has there")
        parent, name = self._parent(path)
        try:
            copy = b".%d.callboard" % os.getpid()
            fd = _open_beneath(self.fd, copy, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o666)
            try:
                with open(fd, "wb", closefd=False) as file:
                    file.write(text)
                # Git takes a file that is older than the index, and has the same times as in it, for unchanged.
                os.utime(fd, ns=(status.st_atime_ns, status.st_mtime_ns))
            finally:
                os.close(fd)
            try:
                os.rename(copy, new_path, src_dir_fd=self.fd, dst_dir_fd=self.fd)
            except OSError:
                os.unlink(copy, dir_fd=self.fd)
                raise
            os.unlink(name, dir_fd=parent)
        finally:
            os.close(parent)

    def _is_index(self, text: bytes) -> bool:
        """Return whether a text is an index with no submodule that the present one does not have."""
        try:
            found = gitlinks(text, self._object_name)
            if not found:
                return True
            with open(_open_beneath(self.fd, _INDEX, os.O_RDONLY | os.O_CLOEXEC, 0), "rb") as file:
                return found <= gitlinks(file.read(), self._object_name)
        except (OSError, ValueError, IndexError, struct.error):
            return False

    def make_directory(self, path: bytes, mode: int) -> None:
        """Make a directory; one in a nursery may be changed from then on."""
        parent, name = self._parent(path)
        try:
            os.mkdir(name, mode, dir_fd=parent)
        finally:
            os.close(parent)
        if self._is_nursed(path):
            top, below = path.split(b"/")
            self._made.add((top, below))

    def remove(self, path: bytes, *, directory: bool) -> None:
        """Remove a file or an empty directory.

        Raises:
            OSError: it may only be replaced, it existed before the process began, or the kernel refuses.
        """
        if path in self._heads:
            raise OSError(errno.EROFS, "it is only replaced")
        top, *below = path.split(b"/")
        if top in self._nurseries and (not below or (top, below[0]) not in self._made):
            raise OSError(errno.EROFS, "it was there before")
        parent, name = self._parent(path)
        try:
            change = os.rmdir if directory else os.unlink
            change(name, dir_fd=parent)
        finally:
            os.close(parent)

    def _is_nursed(self, path: bytes) -> bool:
        return path.count(b"/") == 1 and path.split(b"/")[0] in self._nurseries

    def _parent(self, path: bytes) -> tuple[int, bytes]:
        """Open the directory that a path is in, not through links."""
        above, _, name = path.rpartition(b"/")
        return _open_beneath(self.fd, above or b".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, 0), name


def _contents(fd: int, most: int) -> bytes:
    if os.fstat(fd).st_size > most:
        raise OSError(errno.EFBIG, "too large")
    with open(fd, "rb", closefd=False) as file:
        return file.read(most)


def gitlinks(index: bytes, object_name: int) -> frozenset[bytes]:
    """Return the paths of submodules in a git index. Takes about a microsecond for each file in it.

    Git enters the directory of each of them, and runs commands that the configuration of a repository there names. So
    this must find whatever git finds. An index is refused if it refers to other data (split, sparse), or if its
    tables for threads (EOIE, IEOT) say that entries are elsewhere.

    Args:
        object_name: bytes of the name of an object: 20 for SHA-1, 32 for SHA-256.

    Raises:
        ValueError, IndexError, struct.error: it is not such an index.
    """
    version, count = struct.unpack_from(">II", index, 4)
    if index[:4] != b"DIRC" or version not in (2, 3, 4):
        raise ValueError("not an index")
    at, flags, name = 12, 40 + object_name, b""
    found, starts = [], []
    for _ in range(count):
        whole = True
        high = index[at + flags]
        length = (high & 0xF) << 8 | index[at + flags + 1]
        begin = at + flags + (4 if high & 0x40 else 2)
        if version == 4:
            stripped, begin = _varint(index, begin)
            end = index.index(0, begin)
            if stripped > len(name):
                raise ValueError("a name that is shorter than nothing")
            whole = stripped == len(name)  # so that a thread that begins here reads the same name
            name = name[: len(name) - stripped] + index[begin:end]
            following = end + 1
        else:
            end = index.index(0, begin)
            name = index[begin:end]
            following = at + ((end - at + 8) & ~7)
        if min(len(name), 0xFFF) != length:
            raise ValueError("a name of another length")
        if index[at + 26] & 0xF0 == 0xE0:
            found.append(name)
        if whole:
            starts.append(at)
        at = following
    _check_extensions(index, at, len(index) - object_name, starts)
    return frozenset(found)


def _check_extensions(index: bytes, at: int, last: int, starts: list[int]) -> None:
    entries_end = at
    while at < last:
        kind, size = index[at : at + 4], struct.unpack_from(">I", index, at + 4)[0]
        data, at = index[at + 8 : at + 8 + size], at + 8 + size
        if not b"A" <= kind[:1] <= b"Z":
            raise ValueError("an index that refers to other data")
        if kind == b"EOIE" and struct.unpack_from(">I", data)[0] != entries_end:
            raise ValueError("entries that end elsewhere")
        if kind == b"IEOT":
            known = dict.fromkeys(starts)
            if any(block not in known for block, _ in struct.iter_unpack(">II", data[4:])):
                raise ValueError("entries elsewhere")
    if at != last:
        raise ValueError("more than an index")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = data[at] & 0x7F
    while data[at] & 0x80:
        at += 1
        value = (value + 1) << 7 | data[at] & 0x7F
    return value, at + 1


def _is_head(text: bytes) -> bool:
    """Return whether git takes it for the content of HEAD. Without a valid one, git looks for another repository."""
    line = text.rstrip(b"\n")
    if line.startswith(b"ref: refs/"):
        return b"\n" not in line and len(text) < _LONGEST_HEAD
    return len(line) in (40, 64) and not line.strip(b"0123456789abcdef")


def _matches(name: bytes, pattern: bytes) -> bool:
    if pattern.endswith(b"*"):
        return name.startswith(pattern[:-1])
    return name.endswith(pattern[1:]) if pattern.startswith(b"*") else name == pattern


def _open_beneath(directory: int, path: bytes, flags: int, mode: int) -> int:
    how = ctypes.create_string_buffer(struct.pack("=3Q", flags, mode, _NO_MAGIC_LINKS | _NO_SYMLINKS | _BENEATH), 24)
    fd: int = _libc.syscall(_OPENAT2, directory, path, how, ctypes.c_size_t(24))
    if fd < 0:
        raise OSError(ctypes.get_errno(), "openat2")
    return fd


def _umask(tid: int) -> int:
    with open(f"/proc/{tid}/status", "rb") as file:  # noqa: PTH123 - as above
        for line in file:
            if line.startswith(b"Umask:"):
                return int(line.split()[1], 8)
    return 0o077


class _Change:
    """A change of metadata, with its arguments copied from the program.

    Attributes:
        object: an `O_PATH` descriptor of the object to change.
    """

    def __init__(self, tid: int, name: str, arguments: list[int]) -> None:
        self._name = name
        dirfd, flags = _AT_FDCWD, 0
        at = name.endswith(("at", "at2"))
        if at:
            dirfd, *arguments = _signed(arguments[0]), *arguments[1:]
        pointer, first, second, third, *_ = arguments
        if name in ("fchownat", "fchmodat2", "utimensat"):
            flags = third if name == "fchownat" else second
        if name in ("lchown", "lsetxattr", "lremovexattr"):
            flags = _AT_SYMLINK_NOFOLLOW
        self._values = (first & 0xFFFFFFFF, second & 0xFFFFFFFF)
        if "time" in name:
            self._times = _times_of(tid, name, first)
        elif "xattr" in name:
            self._attribute = _text(tid, first)
            if not self._attribute.startswith(_ATTRIBUTES):
                raise OSError(errno.EPERM, "not an attribute of files alone")
            if "setxattr" in name:
                if third > _LONGEST_VALUE:
                    raise OSError(errno.E2BIG, "too long")
                self._value, self._flags = _read(tid, second, third), _signed(arguments[4])
        if name in ("fchmod", "fchown", "fsetxattr", "fremovexattr"):
            self.object = _descriptor(tid, _signed(pointer))
        elif at and not pointer and "time" in name:
            self.object = _descriptor(tid, dirfd)
        else:
            path = _text(tid, pointer)
            if not path and flags & _AT_EMPTY_PATH:
                self.object = _descriptor(tid, dirfd) if dirfd >= 0 else _open(tid, dirfd, b".", follow=True)
            else:
                self.object = _open(tid, dirfd, path, follow=not flags & _AT_SYMLINK_NOFOLLOW)

    def apply(self) -> None:
        """Change it, by a link that leads to the open object and nowhere else, also if that is a symbolic link.

        Raises:
            OSError: the kernel refuses.
        """
        path = b"/proc/self/fd/%d" % self.object
        if "time" in self._name:
            times = None if self._times is None else ctypes.create_string_buffer(self._times, 32)
            if _libc.utimensat(_AT_FDCWD, path, times, 0) < 0:
                raise OSError(ctypes.get_errno(), "utimensat")
        elif "chmod" in self._name:
            os.chmod(path, self._values[0] & 0o7777)  # noqa: PTH101 - nothing but what starts fast
        elif "chown" in self._name:
            owner, group = (ctypes.c_uint(value) for value in self._values)
            if _libc.chown(path, owner, group) < 0:
                raise OSError(ctypes.get_errno(), "chown")
        elif "setxattr" in self._name:
            os.setxattr(path, self._attribute, self._value, self._flags)
        else:
            os.removexattr(path, self._attribute)


def _times_of(tid: int, name: str, pointer: int) -> bytes | None:
    """Return two `timespec`; None for now."""
    if not pointer:
        return None
    if name == "utime":
        accessed, modified = struct.unpack("=qq", _read(tid, pointer, 16))
        return struct.pack("=4q", accessed, 0, modified, 0)
    times = _read(tid, pointer, 32)
    if name == "utimensat":
        return times
    seconds, micros, later, more_micros = struct.unpack("=4q", times)
    if not (0 <= micros < 1_000_000 and 0 <= more_micros < 1_000_000):
        raise OSError(errno.EINVAL, "not a time")
    return struct.pack("=4q", seconds, micros * 1000, later, more_micros * 1000)


def _open(tid: int, dirfd: int, path: bytes, *, follow: bool) -> int:
    """Open a path as the program would, with `O_PATH`, within its root directory and not through links of `/proc`."""
    for prefix in _OWN_DESCRIPTORS:
        if follow and path.startswith(prefix) and path[len(prefix) :].isdigit():
            return _descriptor(tid, int(path[len(prefix) :]))
    if not path:
        raise OSError(errno.ENOENT, "an empty path")
    if not path.startswith(b"/"):
        link = b"/proc/%d/cwd" % tid if dirfd == _AT_FDCWD else b"/proc/%d/fd/%d" % (tid, dirfd)
        base = os.readlink(link)  # noqa: PTH115 - as above
        path = base + b"/" + path
    root = os.open(b"/proc/%d/root" % tid, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        flags = os.O_PATH | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
        how = ctypes.create_string_buffer(struct.pack("=3Q", flags, 0, _NO_MAGIC_LINKS | _IN_ROOT), 24)
        fd: int = _libc.syscall(_OPENAT2, root, path, how, ctypes.c_size_t(24))
        if fd < 0:
            raise OSError(ctypes.get_errno(), "openat2")
        return fd
    finally:
        os.close(root)


def _descriptor(tid: int, fd: int) -> int:
    """Open the object behind a descriptor of the program."""
    try:
        return os.open(b"/proc/%d/fd/%d" % (tid, fd), os.O_PATH | os.O_CLOEXEC)
    except OSError:
        raise OSError(errno.EBADF, "not a descriptor") from None


def _socket_of(tid: int, fd: int) -> int:
    """Return a duplicate of a socket of the program."""
    with open(f"/proc/{tid}/status", "rb") as file:  # noqa: PTH123 - as above
        fields = dict(line.split(b":", 1) for line in file)
    handle = os.pidfd_open(int(fields[b"Tgid"]))
    try:
        duplicate: int = _libc.syscall(_PIDFD_GETFD, handle, ctypes.c_int(fd), ctypes.c_uint(0))
        if duplicate < 0:
            raise OSError(ctypes.get_errno(), "pidfd_getfd")
        return duplicate
    finally:
        os.close(handle)


def _connected(fd: int, address: bytes) -> int:
    """Connect a socket; return the errno."""
    return ctypes.get_errno() if _libc.connect(fd, address, ctypes.c_uint(len(address))) < 0 else 0


def _read(tid: int, pointer: int, length: int) -> bytes:
    """Copy so many bytes of the program's memory."""
    if not length:
        return b""
    fd = os.open(f"/proc/{tid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        found = os.pread(fd, length, pointer)
    except (OSError, OverflowError):
        found = b""
    finally:
        os.close(fd)
    if len(found) != length:
        raise OSError(errno.EFAULT, "not the program's memory")
    return found


def _text(tid: int, pointer: int) -> bytes:
    """Copy a text of the program that ends with a zero, page by page, since the next page may not be there."""
    text = b""
    while len(text) < _LONGEST_PATH:
        begin = pointer + len(text)
        part, zero, _ = _read(tid, begin, _PAGE - begin % _PAGE).partition(b"\0")
        text += part
        if zero:
            return text
    raise OSError(errno.ENAMETOOLONG, "too long")


def _signed(value: int) -> int:
    """Return an argument that is an `int`."""
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def _close(fds: list[int]) -> None:
    for fd in fds:
        os.close(fd)
