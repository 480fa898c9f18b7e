"""Landlock backend: the kernel refuses a process all files outside of its policy, and TCP.

Landlock rules only allow, and each rule covers everything below its directory. So hidden paths are left out: a
directory above a hidden path is replaced with rules for its other entries. That has three limits, described in
docs/sandbox.md:

- Names of hidden files can still be listed.
- Entries that are created later next to a hidden path can't be read.
- Hidden or fixed paths inside a writable directory can't be excluded, unless no new files may be created next to them.
  So `.env` files and git's configuration stay open; a secret of the user in a home directory used as workspace does
  not.

A ruleset takes hundreds of system calls, so it is cached for as long as the listed directories are unchanged.

The abilities of a kernel have a number, its ABI: 1 (5.13) files; 2 (5.19) moving files between directories; 3 (6.2)
truncating; 4 (6.7) TCP; 5 (6.10) devices; 6 (6.12) signals and abstract sockets.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
import threading
from collections.abc import Mapping
from functools import cache

from .policy import Policy, env_paths, is_below

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
"""Entries of /dev that every process may use."""

KEPT = 32
"""Cached rulesets at most."""


@cache
def abi() -> int:
    """Return the Landlock ABI of this kernel; 0 without Landlock, or if it is disabled."""
    version: int = _libc().syscall(CREATE, None, ctypes.c_size_t(0), ctypes.c_uint(ASK_VERSION))
    return max(0, version)


class Rulesets:
    """Cache of the rulesets for policies. Any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[Policy, tuple[int, Mapping[str, int]]] = {}

    def of(self, policy: Policy) -> int:
        """Return a descriptor of the policy's ruleset. The caller closes it.

        Raises:
            OSError: the kernel refuses the ruleset.
        """
        with self._lock:
            number, seen = self._kept.pop(policy, (-1, {}))
            # A new entry in a listed directory has no rule yet, so the ruleset is outdated.
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
    """Return paths, each with True if sockets below it belong to the run and metadata below it may be changed."""
    places = dict.fromkeys((*policy.hides, *env_paths(policy)), False)
    places |= dict.fromkeys(policy.writes, True)
    if policy.temporary is not None:
        places[policy.temporary] = True
    return places | dict.fromkeys(policy.kept, False)


def scopes() -> int:
    """Return a descriptor of a ruleset that blocks signals to, and abstract sockets of, outside processes only.

    Raises:
        OSError: the kernel refuses the ruleset; ABI 6 and later accept it.
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
    # The size selects the fields of this ABI: a kernel refuses fields that it does not know and that are not zero.
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    ruleset = _checked(
        _libc().syscall(CREATE, ctypes.create_string_buffer(attributes, size), ctypes.c_size_t(size), ctypes.c_uint(0))
    )
    seen: dict[str, int] = {}
    try:
        _allow("/", READ, (*policy.hides, *env_paths(policy), "/dev"), ruleset, seen)
        for path in policy.shows:
            _allow(path, READ, (*policy.hides, *env_paths(policy)), ruleset, seen)
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
    """Allow a path and everything below it except hidden paths. If the path itself is hidden, it is still allowed."""
    hidden = tuple(each for each in hidden if each != path and is_below(each, path))
    if not hidden:
        _add(ruleset, path, rights)
        return
    # A rule for the directory with READ would cover the hidden entries too. READ_DIR only lists names.
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
        return  # removed meanwhile or not accessible to this user: the process can't open it either
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
