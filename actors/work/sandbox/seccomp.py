"""A seccomp filter: system calls that no tool of an agent needs, and that lead out of a sandbox.

Refused with EPERM, so that a program can say so, are: looking into other processes (ptrace, process_vm_*, pidfd_getfd),
mounting and namespaces, the kernel's keys, modules, BPF, io_uring (which does calls past this filter), clocks and other
things of the whole machine, typing into a terminal, sockets of families that are not named, and Unix datagram sockets,
which no broker looks after (see `syscall_broker`). Of `clone3` the kernel could show no flags; it gets ENOSYS, after
which libraries call `clone`. So do calls that are newer than this list: their effect on the sandbox is not known.

Programs of another architecture (32-bit ones) get ENOSYS for each call, since their numbers mean other calls.
"""

from __future__ import annotations

import errno
import platform
import struct
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from typing import TypeAlias

from ....supervisors import syscall_broker

PR_SET_SECCOMP = 22
FILTER = 2

ALLOW = 0x7FFF0000
ERRNO = 0x00050000

USER_NOTIFICATION = 0x7FC00000

LOAD, AND, JUMP_EQUAL, JUMP_AT_LEAST, JUMP_ANY_BIT, RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
NUMBER, ARCHITECTURE, FIRST, SECOND, THIRD = 0, 4, 16, 24, 32

NEW_NAMESPACES = 0x00000080 | 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000
TERMINAL_INPUT = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX

SET_FLAGS = (0x40086602, 0x401C5820, 0x40087602)  # FS_IOC_SETFLAGS, FS_IOC_FSSETXATTR, FS_IOC_SETVERSION

FIRST_UNKNOWN = 463
"""From here on calls are newer than this list (Linux 6.10)."""

SOCKET_TYPE = 0xF
SOCK_STREAM, SOCK_SEQPACKET = 1, 5

AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16

X86_64, AARCH64 = "x86_64", "aarch64"
_ARCHITECTURES = {X86_64: 0xC000003E, AARCH64: 0xC00000B7}

_NUMBERS: dict[str, tuple[int, int | None]] = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "bpf": (321, 280),
    "chroot": (161, 51),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "delete_module": (176, 106),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioperm": (173, None),
    "iopl": (172, None),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "lookup_dcookie": (212, 18),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "process_madvise": (440, 440),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "settimeofday": (164, 170),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "userfaultfd": (323, 282),
    "vhangup": (153, 58),
}
"""Of each call that is refused, on x86_64 and on aarch64, which need not have it."""
_CLONE, _CLONE3, _UNSHARE, _SOCKET, _SOCKETPAIR, _IOCTL = (
    (56, 220),
    (435, 435),
    (272, 97),
    (41, 198),
    (53, 199),
    (16, 29),
)

_Code: TypeAlias = list[tuple[int, int, int, int]]


def is_possible() -> bool:
    """Whether filters can be made for this machine."""
    return sys.platform == "linux" and platform.machine() in _ARCHITECTURES


@cache
def program(families: tuple[int, ...], *, datagrams: bool = False, flags: bool = True) -> bytes:
    """The filter, as the kernel takes it: 8 bytes for each instruction.

    Args:
        families: of sockets that may be opened.
        datagrams: Unix sockets may be of any type.
        flags: flags of files may be changed.
    """
    at = _machine()
    code = _native()
    code += [(JUMP_AT_LEAST, 0, 1, FIRST_UNKNOWN), _refuse(errno.ENOSYS)]
    for numbers in _NUMBERS.values():
        number = numbers[at]
        if number is not None:
            code += [(JUMP_EQUAL, 0, 1, number), _refuse(errno.EPERM)]
    code += [(JUMP_EQUAL, 0, 1, _CLONE3[at]), _refuse(errno.ENOSYS)]
    code += _of(_CLONE[at], FIRST, [(JUMP_ANY_BIT, 0, 1, NEW_NAMESPACES), _refuse(errno.EPERM)])
    code += _of(_UNSHARE[at], FIRST, [(JUMP_ANY_BIT, 0, 1, NEW_NAMESPACES), _refuse(errno.EPERM)])
    requests = TERMINAL_INPUT if flags else (*TERMINAL_INPUT, *SET_FLAGS)
    code += _of(_IOCTL[at], SECOND, _any_of(requests, _refuse(errno.EPERM)))
    code += _of(_SOCKETPAIR[at], FIRST, [] if datagrams else _unix_sockets())
    code += _of(_SOCKET[at], FIRST, _sockets(families, datagrams=datagrams))
    code.append((RETURN, 0, 0, ALLOW))
    return _packed(code)


@cache
def notifying(*, metadata: bool, files: bool) -> bytes:
    """The filter that notifies the broker of connect(2).

    Args:
        metadata: and of changes of files' metadata.
        files: and of calls that make, replace, or remove files.
    """
    code = _brokered(syscall_broker.CONNECT | (syscall_broker.METADATA if metadata else {}), USER_NOTIFICATION)
    if not files:
        return _packed(code)
    notify = (RETURN, 0, 0, USER_NOTIFICATION)
    for name, numbers in syscall_broker.FILES.items():
        number = numbers[_machine()]
        if number is None:
            continue
        if name in ("open", "openat"):
            flags = SECOND if name == "open" else THIRD
            writing = [(JUMP_ANY_BIT, 0, 1, syscall_broker.WRITING), notify]
            code[-1:] = [*_of(number, flags, writing), code[-1]]
        else:
            code[-1:] = [(JUMP_EQUAL, 0, 1, number), notify, code[-1]]
    return _packed(code)


@cache
def refusing(*, metadata: bool) -> bytes:
    """The filter where there can be no broker: no Unix sockets but pairs, and none of these changes."""
    refusal = [(JUMP_EQUAL, 0, 1, AF_UNIX), _refuse(errno.EPERM)]
    code = _brokered(syscall_broker.METADATA if metadata else {}, ERRNO | errno.EPERM)
    return _packed([*code[:-1], *_of(_SOCKET[_machine()], FIRST, refusal), code[-1]])


def _brokered(calls: Mapping[str, tuple[int | None, int | None]], action: int) -> _Code:
    code = _native()
    for numbers in calls.values():
        number = numbers[_machine()]
        if number is not None:
            code += [(JUMP_EQUAL, 0, 1, number), (RETURN, 0, 0, action)]
    return [*code, (RETURN, 0, 0, ALLOW)]


def _machine() -> int:
    return (X86_64, AARCH64).index(platform.machine())


def _native() -> _Code:
    """Refuse calls of another architecture, and load the number of the call."""
    machine = platform.machine()
    code: _Code = [(LOAD, 0, 0, ARCHITECTURE), (JUMP_EQUAL, 1, 0, _ARCHITECTURES[machine]), _refuse(errno.ENOSYS)]
    code.append((LOAD, 0, 0, NUMBER))
    if machine == X86_64:
        code += [(JUMP_AT_LEAST, 0, 1, 0x40000000), _refuse(errno.ENOSYS)]
    return code


def _sockets(families: tuple[int, ...], *, datagrams: bool) -> _Code:
    plain = families if datagrams else tuple(each for each in families if each != AF_UNIX)
    last = [_refuse(errno.EPERM)]
    if AF_UNIX in families and not datagrams:
        last = [*_unix_sockets(), _refuse(errno.EPERM)]
    return [*_any_of(plain, (RETURN, 0, 0, ALLOW)), *last]


def _unix_sockets() -> _Code:
    """Of Unix sockets and pairs, refuse those whose datagrams can be addressed; other families are let through.

    sendmsg(2) names an address with each datagram, of a socket pair too. A stream refuses it.
    """
    types = [*_any_of((SOCK_STREAM, SOCK_SEQPACKET), (RETURN, 0, 0, ALLOW)), _refuse(errno.EPERM)]
    then = [(LOAD, 0, 0, SECOND), (AND, 0, 0, SOCKET_TYPE), *types]
    return [(JUMP_EQUAL, 0, len(then), AF_UNIX), *then]


def _packed(code: _Code) -> bytes:
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


def _of(number: int, argument: int, then: _Code) -> _Code:
    """For the call of this number: what follows from an argument of it, and else that it may be made."""
    then = [(LOAD, 0, 0, argument), *then, (RETURN, 0, 0, ALLOW)]
    return [(JUMP_EQUAL, 0, len(then), number), *then]


def _any_of(values: Iterable[int], then: tuple[int, int, int, int]) -> _Code:
    return [instruction for value in values for instruction in ((JUMP_EQUAL, 0, 1, value), then)]


def _refuse(number: int) -> tuple[int, int, int, int]:
    return RETURN, 0, 0, ERRNO | number
