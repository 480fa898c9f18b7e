"""seccomp filter: blocks system calls that no tool of an agent needs and that lead out of a sandbox.

These calls fail with EPERM, so that a program can report it:

- access to other processes (ptrace, process_vm_*, pidfd_getfd)
- mounts and namespaces, the kernel's keys, modules, BPF
- io_uring, which executes calls past this filter
- clocks and other settings of the whole machine
- input into a terminal (TIOCSTI)
- modes with setuid or setgid
- sockets of families that are not listed
- Unix datagram sockets, which no broker checks (see `syscall_broker`)

`clone3` passes its flags behind a pointer, which a filter can't read. It gets ENOSYS, after which libraries call
`clone`. Calls that are newer than this list get ENOSYS too, because their effect on the sandbox is not known.

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
NUMBER, ARCHITECTURE, FIRST, SECOND, THIRD, FOURTH = 0, 4, 16, 24, 32, 40

NEW_NAMESPACES = 0x00000080 | 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000
TERMINAL_INPUT = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX

SET_FLAGS = (0x40086602, 0x401C5820, 0x40087602)  # FS_IOC_SETFLAGS, FS_IOC_FSSETXATTR, FS_IOC_SETVERSION

SET_ID = 0o6000  # S_ISUID, S_ISGID
CREATING = 0x40 | 0x400000  # O_CREAT, and the bit that only O_TMPFILE has

_MODES: dict[tuple[int, int | None], int] = {
    (90, None): SECOND,  # chmod
    (91, 52): SECOND,  # fchmod
    (268, 53): THIRD,  # fchmodat
    (452, 452): THIRD,  # fchmodat2
    (85, None): SECOND,  # creat
    (133, None): SECOND,  # mknod
    (259, 33): THIRD,  # mknodat
}
_OPENS: dict[tuple[int, int | None], tuple[int, int]] = {(2, None): (SECOND, THIRD), (257, 56): (THIRD, FOURTH)}
_OPENAT2 = (437, 437)
"""Calls that set the mode of a file, with the argument that holds it; for calls that open, flags and mode."""

FIRST_UNKNOWN = 463
"""First call number that is newer than this list (Linux 6.10)."""

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
"""Numbers of each refused call on x86_64 and on aarch64; None where it does not exist."""
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
    """Return True if filters can be built for this machine."""
    return sys.platform == "linux" and platform.machine() in _ARCHITECTURES


@cache
def program(
    families: tuple[int, ...], *, datagrams: bool = False, flags: bool = True, privileges: bool = False
) -> bytes:
    """Return the filter in the kernel's format: 8 bytes for each instruction.

    Args:
        families: socket families that may be opened.
        datagrams: Unix sockets may be of any type.
        flags: flags of files may be changed.
        privileges: files may be made setuid and setgid.
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
    code += [] if privileges else _no_privileges(at)
    code += _of(_SOCKETPAIR[at], FIRST, [] if datagrams else _unix_sockets())
    code += _of(_SOCKET[at], FIRST, _sockets(families, datagrams=datagrams))
    code.append((RETURN, 0, 0, ALLOW))
    return _packed(code)


def _no_privileges(at: int) -> _Code:
    """Refuse modes with the bits setuid and setgid: another user who starts such a file runs it as this user.

    openat2 passes its mode behind a pointer, so it gets ENOSYS. Programs then call openat.
    """
    check = [(JUMP_ANY_BIT, 0, 1, SET_ID), _refuse(errno.EPERM)]
    code: _Code = [(JUMP_EQUAL, 0, 1, _OPENAT2[at]), _refuse(errno.ENOSYS)]
    for numbers, mode in _MODES.items():
        number = numbers[at]
        code += [] if number is None else _of(number, mode, check)
    for numbers, (flags, mode) in _OPENS.items():
        number = numbers[at]
        then = [(JUMP_ANY_BIT, 0, 3, CREATING), (LOAD, 0, 0, mode), *check]
        code += [] if number is None else _of(number, flags, then)
    return code


@cache
def notifying(*, metadata: bool, files: bool) -> bytes:
    """Return the filter that notifies the broker of connect(2).

    Args:
        metadata: also of changes of files' metadata.
        files: also of calls that create, replace, or remove files.
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
    """Return the filter for kernels without a broker: no Unix sockets except pairs, and no changes of metadata."""
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
        # Calls of the x32 ABI have this bit in their number and the same architecture.
        code += [(JUMP_AT_LEAST, 0, 1, 0x40000000), _refuse(errno.ENOSYS)]
    return code


def _sockets(families: tuple[int, ...], *, datagrams: bool) -> _Code:
    plain = families if datagrams else tuple(each for each in families if each != AF_UNIX)
    last = [_refuse(errno.EPERM)]
    if AF_UNIX in families and not datagrams:
        last = [*_unix_sockets(), _refuse(errno.EPERM)]
    return [*_any_of(plain, (RETURN, 0, 0, ALLOW)), *last]


def _unix_sockets() -> _Code:
    """Refuse Unix sockets and pairs whose datagrams can be addressed; let other families through.

    sendmsg(2) names an address with each datagram, of a socket pair too. A stream refuses it.
    """
    types = [*_any_of((SOCK_STREAM, SOCK_SEQPACKET), (RETURN, 0, 0, ALLOW)), _refuse(errno.EPERM)]
    then = [(LOAD, 0, 0, SECOND), (AND, 0, 0, SOCKET_TYPE), *types]
    return [(JUMP_EQUAL, 0, len(then), AF_UNIX), *then]


def _packed(code: _Code) -> bytes:
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


def _of(number: int, argument: int, then: _Code) -> _Code:
    """Return code that checks one argument if the call has this number, and allows the call otherwise."""
    then = [(LOAD, 0, 0, argument), *then, (RETURN, 0, 0, ALLOW)]
    return [(JUMP_EQUAL, 0, len(then), number), *then]


def _any_of(values: Iterable[int], then: tuple[int, int, int, int]) -> _Code:
    return [instruction for value in values for instruction in ((JUMP_EQUAL, 0, 1, value), then)]


def _refuse(number: int) -> tuple[int, int, int, int]:
    return RETURN, 0, 0, ERRNO | number
