"""Network namespace with nothing but its loopback, and a socket inside on which Callboard listens.

Only a process inside a namespace can open a socket of it. So a helper starts there once: `bwrap` creates the namespace
and brings its loopback up. The helper opens the socket, sends it to Callboard together with the namespace, and exits.
Later processes of the run start in that namespace, and Callboard answers their connections to the socket directly.
There is no relay in between, and no other way out.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, final

from ....protocol.errors import ProcessError
from ....supervisors.process import run_process
from . import bubblewrap

if TYPE_CHECKING:
    from ....supervisors import Actor

HELPER = Path(__file__).resolve().with_name("in_namespace.py")

MADE_WITHIN = 30.0
"""Seconds allowed to create a namespace."""


@final
class Namespace:
    """Network namespace with a listening socket. It holds descriptors until it is closed.

    Attributes:
        listening: listening socket inside the namespace, used from outside.
        port: port of the socket on the namespace's 127.0.0.1.
    """

    def __init__(self, listening: socket.socket, user: int, network: int, *, as_root: bool) -> None:
        self.listening = listening
        self.port = int(listening.getsockname()[1])
        self._fds: tuple[int, ...] = (user, network)
        self._as_root = as_root

    @property
    def closed(self) -> bool:
        """True once no process can be started in the namespace any more."""
        return not self._fds

    def command(self) -> list[str]:
        """Return the command prefix that starts a program in the namespace; empty as root.

        Raises:
            ProcessError: the namespace is closed.
        """
        if self._as_root:
            return []
        user, network = self._open()
        # By this process's descriptors: inherited ones would stay open in the started program. nsenter closes its own.
        ours = f"/proc/{os.getpid()}/fd"
        return ["nsenter", f"--user={ours}/{user}", f"--net={ours}/{network}", "--preserve-credentials", "--"]

    def network_to_enter(self) -> int | None:
        """Return the descriptor of the network namespace if a process can enter it directly, as only root can; else
        None."""
        return self._open()[1] if self._as_root else None

    def _open(self) -> tuple[int, ...]:
        if not self._fds:
            raise ProcessError("the run that the sandbox's network was for is over")
        return self._fds

    def close(self) -> None:
        """Close the descriptors; no more processes can start here. Idempotent."""
        self.listening.close()
        fds, self._fds = self._fds, ()
        for fd in fds:
            os.close(fd)


async def make_namespace(me: Actor, *, as_root: bool) -> Namespace:
    """Create a namespace.

    Raises:
        ProcessError: the namespace can't be created.
    """
    program = bubblewrap.found() or "bwrap"
    ours, theirs = socket.socketpair()
    with ours, theirs:
        number = theirs.fileno()
        ways = [] if as_root else ["--unshare-user"]
        argv = [program, *ways, "--unshare-net", "--die-with-parent", "--dev-bind", "/", "/", "--"]
        done = await run_process(
            me,
            [*argv, sys.executable, "-I", "-S", HELPER, str(number)],
            name="namespace",
            env={},
            pass_fds=[number],
            timeout=MADE_WITHIN,
        )
        theirs.close()
        ours.setblocking(False)
        try:
            _, fds, _, _ = socket.recv_fds(ours, 16, 3)
        except BlockingIOError:
            fds = []
    if len(fds) != 3:
        for fd in fds:
            os.close(fd)
        why = done.stderr_tail.strip()[-300:] or f"exit status {done.status}"
        raise ProcessError(f"a network for the sandbox can't be made: {why}")
    listening, user, network = fds
    return Namespace(socket.socket(fileno=listening), user, network, as_root=as_root)
