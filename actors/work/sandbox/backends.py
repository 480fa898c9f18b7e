"""Sandbox backend of this machine: its detection by one trial run, and the start of a process under a policy.

bubblewrap is preferred. Containers and some distributions forbid the namespaces that it needs; then Landlock is used.
Both come with a seccomp filter. Without either, the backend is `none`. `CALLBOARD_SANDBOX_BACKEND` requires one backend
and disables the fallback.
"""

from __future__ import annotations

import errno
import os
import platform
import shutil
import socket
import stat
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeAlias, final

import msgspec

from ....supervisors.confinement import Brokered, Confined, Guarded, Restrictions
from . import bubblewrap, landlock, seccomp
from .policy import RETAINED_CAPABILITIES, GitDirectory, Policy

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
        why_not.append(f"the sandbox supports Linux on x86_64 and aarch64 only, not {platform.platform()}")
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
        why_not.append("this kernel has no Landlock, or Landlock is turned off")
    if wanted == "none":
        why_not.append(f"{VARIABLE} says so")
    return Backend(kind="none", why_not=tuple(why_not))


def _tried(*, as_root: bool) -> str:
    """Return the reason why bubblewrap does not work here; empty if it works."""
    program = bubblewrap.found()
    if program is None:
        return "bubblewrap is not installed (Debian: apt install bubblewrap)"
    if not as_root and os.stat(program).st_mode & stat.S_ISUID:
        return "bubblewrap is setuid on this machine, and programs that the sandbox starts can't gain privileges"
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
        except subprocess.TimeoutExpired:
            return f"bubblewrap does not work on this machine: a trial process did not end within {TRIED_WITHIN:g} s"
        except OSError as error:
            return f"bubblewrap does not work on this machine: {error}"
    if tried.returncode == 0:
        return ""
    return f"bubblewrap does not work on this machine: {tried.stderr.decode(errors='replace').strip()[-300:]}"


_RULESETS = landlock.Rulesets()

FAMILIES = (seccomp.AF_UNIX, seccomp.AF_INET, seccomp.AF_INET6, seccomp.AF_NETLINK)
"""Socket families that every process with a network may open, even if the network is a private one."""

SCOPED_FROM = 6
"""First Landlock ABI that scopes signals and abstract sockets, and that does not stop bubblewrap from mounting."""


@final
class SandboxedProcess:
    """Start of one process under a policy, with the given backend."""

    def __init__(self, policy: Policy, backend: Backend) -> None:
        self._policy = policy
        self._backend = backend

    def begin(self, argv: Sequence[str], env: Mapping[str, str], cwd: str | None) -> Confined:
        """Return the changed command and its restrictions; see `Confinement.begin`."""
        policy = self._policy
        if not policy.bounded:
            return Confined(argv=argv, env=env, restrictions=_restrictions(FAMILIES, datagrams=True))
        if self._backend.kind == "bubblewrap":
            return self._in_bubblewrap(_present(argv, env, cwd), env)
        return self._in_landlock(argv, env)

    def _in_bubblewrap(self, argv: Sequence[str], env: Mapping[str, str]) -> Confined:
        program = bubblewrap.found()
        if program is None:
            raise FileNotFoundError(errno.ENOENT, "bubblewrap is no longer installed", "bwrap")
        fds = [filter := os.memfd_create("seccomp", os.MFD_CLOEXEC)]
        try:
            os.write(filter, seccomp.program(FAMILIES))
            os.lseek(filter, 0, os.SEEK_SET)
            options = bubblewrap.options(self._policy, filter=filter, as_root=self._backend.as_root)
            namespace = self._policy.namespace
            first = [] if namespace is None else namespace.command()
            before: list[str] = []
            within: list[str] = []
            if bubblewrap.covers_after(self._policy):
                fds.append(files := os.memfd_create("files", os.MFD_CLOEXEC))
                with os.fdopen(os.dup(files), "wb") as file:
                    file.write(bubblewrap.records(self._policy))
                os.lseek(files, 0, os.SEEK_SET)
                ours, inner = (each.detach() for each in socket.socketpair())
                fds += [ours, inner]
                before, within = bubblewrap.covering(files=files, ours=ours, inner=inner)
            network = None if namespace is None else namespace.network_to_enter()
            # A shared network namespace has abstract sockets of other programs in it, so Landlock scopes them. But a
            # process in a Landlock domain can't open files in this process's /proc, which nsenter needs (see `egress`).
            # The processes that nsenter starts have a network namespace of their own instead.
            scopes = landlock.scopes() if self._backend.abi >= SCOPED_FROM and not first else None
            own_network = not self._policy.network
            places = bubblewrap.own_places(self._policy)
            broker = _broker(places, metadata=bool(self._policy.git), abstract=own_network, git=self._policy.git)
        except BaseException:
            _closing(*fds)()
            raise
        return Confined(
            argv=[*first, *before, program, *options, "--", *within, *argv],
            env=bubblewrap.environment(self._policy, env),
            fds=fds,
            restrictions=Restrictions(network=network, gains_nothing=True, ruleset=scopes, broker=broker),
            close=_closing(*fds, scopes),
        )

    def _in_landlock(self, argv: Sequence[str], env: Mapping[str, str]) -> Confined:
        policy = self._policy
        assert policy.temporary is not None  # Landlock has no mounts, so it can't create a `/tmp` in memory
        place = policy.temporary
        families = FAMILIES if policy.network else (seccomp.AF_UNIX,)
        ruleset = _RULESETS.of(policy)
        # Without a network namespace, abstract sockets belong to the whole machine.
        broker = _broker(landlock.own_places(policy), metadata=True, abstract=False)
        return Confined(
            argv=argv,
            env={**env, "TMPDIR": place, "TMP": place, "TEMP": place},
            restrictions=_restrictions(families, ruleset=ruleset, broker=broker),
            close=_closing(ruleset),
        )


def _restrictions(
    families: tuple[int, ...],
    *,
    datagrams: bool = False,
    ruleset: int | None = None,
    broker: Brokered | None = None,
) -> Restrictions:
    """Return restrictions for processes outside of bubblewrap: no new privileges, few capabilities, few sockets."""
    return Restrictions(
        gains_nothing=True,
        capabilities=tuple(RETAINED_CAPABILITIES.values()),
        ruleset=ruleset,
        filter=seccomp.program(
            families, datagrams=datagrams, flags=ruleset is None, privileges=datagrams and ruleset is None
        ),
        broker=broker,
    )


def _broker(
    places: Mapping[str, bool], *, metadata: bool, abstract: bool, git: Sequence[GitDirectory] = ()
) -> Brokered:
    return Brokered(
        filter=seccomp.notifying(metadata=metadata, files=bool(git)),
        without=seccomp.refusing(metadata=metadata),
        places=tuple((os.fsencode(path), own) for path, own in places.items()),
        abstract=abstract,
        guarded=tuple(
            Guarded(
                directory=os.fsencode(each.path),
                names=tuple(map(os.fsencode, each.names)),
                heads=tuple(map(os.fsencode, each.heads)),
                trees=tuple(map(os.fsencode, each.trees)),
                nurseries=tuple(map(os.fsencode, each.nurseries)),
                object_name=each.object_name,
            )
            for each in git
        ),
        unchangeable=tuple(os.fsencode(path) for each in git for path in each.writable),
    )


def _closing(*fds: int | None) -> Callable[[], None]:
    def close() -> None:
        for fd in fds:
            if fd is not None:
                os.close(fd)

    return close


def _present(argv: Sequence[str], env: Mapping[str, str], cwd: str | None) -> Sequence[str]:
    """Return the command after checking that it can be executed.

    bubblewrap reports a missing program only on stderr, so this raises the error that `exec` would give.

    Raises:
        FileNotFoundError: the program does not exist.
        PermissionError: the program is not executable.
    """
    program = argv[0]
    if "/" not in program:
        path = shutil.which(program, path=env.get("PATH", os.defpath))
        if path is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), program)
        return argv
    whole = os.path.join(cwd or ".", program)
    if not os.path.exists(whole):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), program)
    if not os.access(whole, os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), program)
    return argv
