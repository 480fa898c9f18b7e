"""`Confinement` of one process that applies a policy with the backend of this machine."""

from __future__ import annotations

import errno
import os
import shutil
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import final

from ....supervisors.confinement import Brokered, Confined, Guarded, Restrictions
from . import bubblewrap, landlock, seccomp
from .backends import Backend
from .git_directories import GitDirectory
from .policy import Policy
from .privileges import KEPT

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
            raise FileNotFoundError(errno.ENOENT, "bubblewrap is not installed any more", "bwrap")
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
            # process in a Landlock domain can't open files in this process's /proc, which nsenter needs (`namespace`).
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
        capabilities=tuple(KEPT.values()),
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
