"""Landlock: the kernel refuses a process all files but those of its policy, and TCP.

Rules can only allow, and hold for all that is below a directory. So what is hidden is left out: a directory on the way
to it is spelled out as those entries of it that are not. That gives three limits, which docs/sandbox.md names: names of
hidden files can still be listed; entries that are made later beside them can't be read; and what is hidden or fixed
inside of what may be written can't be kept out, unless nothing new is to be made beside it: `.env` files and what git
reads commands from are open there; a secret of the user's in a home directory that is worked in is not.

A ruleset takes hundreds of system calls, so it is kept for as long as the directories that were spelled out stay as
they are.

What a kernel can do is told by a number, its ABI: 1 (5.13) files; 2 (5.19) moving them between directories; 3 (6.2)
cutting them; 4 (6.7) TCP; 5 (6.10) devices; 6 (6.12) signals and abstract sockets.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
import threading
from collections.abc import Mapping
from functools import cache

from .policy import Policy, is_below

CREATE, ADD_RULE = 444, 445
ASK_VERSION = 1
PATH_BENEATH = 1

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, REFER, TRUNCATE, IOCTL_DEV = (
    1 << 0,
    1 << 1,
    1 << 2,
    1 << 3,
    1 << 13,
    1 << 14,
    1 << 15,
)
READ = EXECUTE | READ_FILE | READ_DIR
OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
TCP = 0b11
SCOPES = 0b11

DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "shm")
"""What every process may have of /dev."""

KEPT = 32
"""Rulesets kept at the same time."""


@cache
def abi() -> int:
    """The ABI of this kernel; 0 if it has no Landlock, or it is switched off."""
    version: int = _libc().syscall(CREATE, None, ctypes.c_size_t(0), ctypes.c_uint(ASK_VERSION))
    return max(0, version)


class Rulesets:
    """Makes rulesets of policies, and keeps them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[Policy, tuple[int, Mapping[str, int]]] = {}

    def of(self, policy: Policy) -> int:
        """Return a descriptor of the policy's ruleset, which is the caller's to close.

        Raises:
            OSError: the kernel does not take it.
        """
        with self._lock:
            number, seen = self._kept.pop(policy, (-1, {}))
            if number >= 0 and any(_changed(path) != when for path, when in seen.items()):
                os.close(number)
                number = -1
            if number < 0:
                number, seen = _made(policy)
            self._kept[policy] = number, seen
            if len(self._kept) > KEPT:
                oldest, _ = self._kept.pop(next(iter(self._kept)))
                os.close(oldest)
            return os.dup(number)


def own_places(policy: Policy) -> dict[str, bool]:
    """Return paths with whether sockets there are of the process's run, and metadata there may be changed."""
    places = dict.fromkeys((*policy.hides, *policy.env_files), False)
    places |= dict.fromkeys(policy.writes, True)
    if policy.temporary is not None:
        places[policy.temporary] = True
    return places | dict.fromkeys(policy.kept, False)


def scopes() -> int:
    """A descriptor of a ruleset that keeps out signals to, and abstract sockets of, processes outside, and no more.

    Raises:
        OSError: the kernel does not take it; from ABI 6 on it does.
    """
    attributes = struct.pack("=3Q", 0, 0, SCOPES)
    return _checked(
        _libc().syscall(CREATE, ctypes.create_string_buffer(attributes, 24), ctypes.c_size_t(24), ctypes.c_uint(0))
    )


def _made(policy: Policy) -> tuple[int, Mapping[str, int]]:
    version = abi()
    handled = _everything(version)
    tcp = TCP if version >= 4 and not policy.network else 0
    attributes = struct.pack("=3Q", handled, tcp, SCOPES if version >= 6 else 0)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    ruleset = _checked(
        _libc().syscall(CREATE, ctypes.create_string_buffer(attributes, size), ctypes.c_size_t(size), ctypes.c_uint(0))
    )
    seen: dict[str, int] = {}
    try:
        _allow("/", READ, (*policy.hides, *policy.env_files, "/dev"), ruleset, seen)
        for path in policy.shows:
            _allow(path, READ, (*policy.hides, *policy.env_files), ruleset, seen)
        for path in policy.writes if policy.temporary is None else (*policy.writes, policy.temporary):
            _allow(path, handled, (*policy.hides, *policy.kept), ruleset, seen)
        for name in DEVICES:
            _add(
                ruleset,
                f"/dev/{name}",
                handled if name == "shm" else READ | WRITE_FILE | TRUNCATE | (handled & IOCTL_DEV),
            )
    except BaseException:
        os.close(ruleset)
        raise
    return ruleset, seen


def _allow(path: str, rights: int, hidden: tuple[str, ...], ruleset: int, seen: dict[str, int]) -> None:
    """Allow this with what is in a directory, but for what is hidden there. A hidden path that is named is meant so."""
    hidden = tuple(each for each in hidden if each != path and is_below(each, path))
    if not hidden:
        _add(ruleset, path, rights)
        return
    seen[path] = _changed(path)
    _add(ruleset, path, READ_DIR)
    try:
        with os.scandir(path) as entries:
            names = [entry.name for entry in entries if not entry.is_symlink()]
    except OSError:
        return
    for name in names:
        below = f"{path.rstrip('/')}/{name}"
        if below not in hidden:
            _allow(below, rights, hidden, ruleset, seen)


def _add(ruleset: int, path: str, rights: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # gone meanwhile, or not ours to open: then it is not to be had either
    try:
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            rights &= OF_FILES
        rule = struct.pack("=Qi", rights & _everything(abi()), place)
        buffer = ctypes.create_string_buffer(rule, len(rule))
        _checked(_libc().syscall(ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(PATH_BENEATH), buffer, ctypes.c_uint(0)))
    finally:
        os.close(place)


def _everything(version: int) -> int:
    most = {0: 0, 1: 13, 2: 14, 3: 15, 4: 15}.get(version, 16)
    return (1 << most) - 1


def _changed(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return -1


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"Landlock: {os.strerror(number)}")
    return result
