"""Detection of the sandbox backend of this machine, by one trial run.

bubblewrap is preferred. Containers and some distributions forbid the namespaces that it needs; then Landlock is used.
Both come with a seccomp filter. Without either, the backend is `none`. `CALLBOARD_SANDBOX_BACKEND` requires one backend
and disables the fallback.
"""

from __future__ import annotations

import os
import platform
import stat
import subprocess
from collections.abc import Mapping
from typing import Literal, TypeAlias

import msgspec

from . import bubblewrap, landlock, seccomp
from .policy import Policy

Kind: TypeAlias = Literal["bubblewrap", "landlock", "none"]

VARIABLE = "CALLBOARD_SANDBOX_BACKEND"

TRIED_WITHIN = 10.0
"""Seconds allowed for the trial process in bubblewrap."""


class Backend(msgspec.Struct, frozen=True, kw_only=True):
    """Mechanism that enforces policies on this machine.

    Attributes:
        kind: the mechanism.
        as_root: bubblewrap mounts with root's privileges and creates no user namespace.
        abi: Landlock ABI, which bubblewrap uses for signals and abstract sockets; 0 without Landlock.
        why_not: reasons why each better backend does not work.
    """

    kind: Kind
    as_root: bool = False
    abi: int = 0
    why_not: tuple[str, ...] = ()


def backend(environ: Mapping[str, str] = os.environ) -> Backend:
    """Return the backend of this machine. Blocks on the first call."""
    wanted = environ.get(VARIABLE, "")
    if wanted not in _KNOWN:
        _KNOWN[wanted] = _found(wanted)
    return _KNOWN[wanted]


_KNOWN: dict[str, Backend] = {}


def is_known(environ: Mapping[str, str] = os.environ) -> bool:
    """Return True if `backend` returns without blocking."""
    return environ.get(VARIABLE, "") in _KNOWN


def _found(wanted: str) -> Backend:
    why_not: list[str] = []
    if not seccomp.is_possible():
        why_not.append(f"seccomp filters are made for Linux on x86_64 and aarch64, not for {platform.platform()}")
        return Backend(kind="none", why_not=tuple(why_not))
    abi = landlock.abi()
    if wanted in ("", "bubblewrap"):
        # Root may mount without a user namespace. A container can refuse that and still allow user namespaces.
        for as_root in (True, False) if os.geteuid() == 0 else (False,):
            why = _tried(as_root=as_root)
            if not why:
                return Backend(kind="bubblewrap", as_root=as_root, abi=abi)
        why_not.append(why)
    if wanted in ("", "landlock"):
        if abi:
            return Backend(kind="landlock", abi=abi, why_not=tuple(why_not))
        why_not.append("this kernel has no Landlock, or it is switched off")
    if wanted == "none":
        why_not.append(f"{VARIABLE} says so")
    return Backend(kind="none", why_not=tuple(why_not))


def _tried(*, as_root: bool) -> str:
    """Return the reason why bubblewrap does not work here; empty if it works."""
    program = bubblewrap.found()
    if program is None:
        return "bubblewrap is not installed (Debian: apt install bubblewrap)"
    if not as_root and os.stat(program).st_mode & stat.S_ISUID:
        return "bubblewrap is setuid here, and what a sandbox starts gains no privileges"
    # The trial uses a real policy and a real filter: a kernel can allow namespaces and refuse one of the mounts.
    with os.fdopen(os.memfd_create("seccomp", os.MFD_CLOEXEC), "r+b") as filter:
        filter.write(seccomp.program((seccomp.AF_UNIX,)))
        filter.seek(0)
        policy = Policy(profile="read-only")
        argv = [program, *bubblewrap.options(policy, filter=filter.fileno(), as_root=as_root), "--", "/bin/true"]
        try:
            tried = subprocess.run(
                argv, pass_fds=[filter.fileno()], capture_output=True, timeout=TRIED_WITHIN, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"bubblewrap does not work here: {error}"
    if tried.returncode == 0:
        return ""
    return f"bubblewrap does not work here: {tried.stderr.decode(errors='replace').strip()[-300:]}"
