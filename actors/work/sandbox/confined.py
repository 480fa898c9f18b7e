"""One process that is held to a policy: the `Confinement` that it is started with."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, final

import msgspec

from ....supervisors.confinement import Confined
from . import bubblewrap, landlock, privileges, seccomp
from .backends import Backend
from .policy import Policy

if TYPE_CHECKING:
    from .namespace import Namespace

_RULESETS = landlock.Rulesets()

OF_BUBBLEWRAP = (seccomp.AF_UNIX, seccomp.AF_INET, seccomp.AF_INET6, seccomp.AF_NETLINK)
"""It has sockets of its own file system and network alone, so it may open any."""

SCOPED_FROM = 6
"""The ABI of Landlock that knows of signals and abstract sockets, and lets bubblewrap mount."""

OF_LANDLOCK = (seccomp.AF_INET, seccomp.AF_INET6, seccomp.AF_NETLINK)
"""With a network. Landlock can't tell the socket of a user's own program from that of D-Bus or docker: none is had.
Without a network there are only such, and none can be connected; some programs (tsx) want to listen at one even so.
"""


@final
class SandboxedProcess:
    """See `Confinement`."""

    def __init__(self, policy: Policy, backend: Backend) -> None:
        self._policy = policy
        self._backend = backend
        self._own: str | None = None

    def begin(self, argv: Sequence[str], env: Mapping[str, str], cwd: str | None) -> Confined:
        """See `Confinement`."""
        policy = self._policy
        if not policy.bounded:
            return Confined(argv=argv, env=env, enter=partial(_enter, None, OF_BUBBLEWRAP))
        if self._backend.kind == "bubblewrap":
            return self._in_bubblewrap(_present(argv, env, cwd), env)
        return self._in_landlock(argv, env)

    def end(self) -> None:
        """See `Confinement`."""
        if self._own is not None:
            shutil.rmtree(self._own, ignore_errors=True)

    def _in_bubblewrap(self, argv: Sequence[str], env: Mapping[str, str]) -> Confined:
        program = bubblewrap.found()
        if program is None:
            raise FileNotFoundError(errno.ENOENT, "bubblewrap is not installed any more", "bwrap")
        filter = os.memfd_create("seccomp", os.MFD_CLOEXEC)
        try:
            os.write(filter, seccomp.program(OF_BUBBLEWRAP))
            os.lseek(filter, 0, os.SEEK_SET)
            options = bubblewrap.options(self._policy, filter=filter, as_root=self._backend.as_root)
        except BaseException:
            os.close(filter)
            raise
        namespace = self._policy.namespace
        first, fds = ([], []) if namespace is None else namespace.command()
        return Confined(
            argv=[*first, program, *options, "--", *argv],
            env=bubblewrap.environment(self._policy, env),
            fds=[filter, *fds],
            enter=partial(_enter_scopes, namespace, scoped=self._backend.abi >= SCOPED_FROM),
            close=partial(os.close, filter),
        )

    def _in_landlock(self, argv: Sequence[str], env: Mapping[str, str]) -> Confined:
        policy = self._policy
        if policy.temporary is None:
            self._own = tempfile.mkdtemp(prefix="callboard-tmp-")
            policy = msgspec.structs.replace(policy, writes=(*policy.writes, self._own))
        place = self._own or policy.temporary or ""
        return Confined(
            argv=argv,
            env={**env, "TMPDIR": place, "TMP": place, "TEMP": place},
            enter=partial(_enter, policy, OF_LANDLOCK if policy.network else (seccomp.AF_UNIX,)),
        )


def _enter_scopes(namespace: Namespace | None, *, scoped: bool) -> None:
    """What the thread that starts bubblewrap gives up: a network that is on has abstract sockets of others in it."""
    if namespace is not None:
        namespace.enter()
    if not scoped:
        return
    privileges.gain_none()
    ruleset = landlock.scopes()
    try:
        landlock.enter(ruleset)
    finally:
        os.close(ruleset)


def _enter(policy: Policy | None, families: tuple[int, ...]) -> None:
    """What the thread that starts it gives up. Of all this nothing can be had back."""
    privileges.give_up()
    if policy is not None:
        with _RULESETS.of(policy) as ruleset:
            landlock.enter(ruleset)
    reaches = policy is None or policy.network
    seccomp.enter(seccomp.program(families, connects=reaches))


def _present(argv: Sequence[str], env: Mapping[str, str], cwd: str | None) -> Sequence[str]:
    """The command; what is to be executed must be there, which bubblewrap would only tell on stderr."""
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
