"""A network of our own making: a namespace with nothing in it but its loopback, and a socket there that we listen at.

Only a process that is in a namespace can open a socket of it. So one is started there once (`bwrap` makes the
namespace and brings its loopback up), which opens the socket, hands it to us together with the namespace, and ends.
From then on the processes of a run are started in that namespace, and whoever connects to the socket there is answered
by us: no relay stands in between, and there is no other way out.
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
"""Seconds for a namespace."""


@final
class Namespace:
    """See the module. Holds descriptors until it is closed.

    Attributes:
        listening: the socket that we listen at, from outside of the namespace.
        port: of it, on the namespace's 127.0.0.1.
    """

    def __init__(self, listening: socket.socket, user: int, network: int, *, as_root: bool) -> None:
        self.listening = listening
        self.port = int(listening.getsockname()[1])
        self._fds: tuple[int, ...] = (user, network)
        self._as_root = as_root

    @property
    def closed(self) -> bool:
        """Whether nothing can be started here any more."""
        return not self._fds

    def command(self) -> list[str]:
        """Return the words before a command line that is to start in here."""
        if self._as_root:
            return []
        user, network = self._open()
        # By our own descriptors: those that it inherits would stay open in what is started. nsenter closes its own.
        ours = f"/proc/{os.getpid()}/fd"
        return ["nsenter", f"--user={ours}/{user}", f"--net={ours}/{network}", "--preserve-credentials", "--"]

    def network_to_enter(self) -> int | None:
        """Return its descriptor if a process can be put into it without another program: root's can."""
        return self._open()[1] if self._as_root else None

    def _open(self) -> tuple[int, ...]:
        if not self._fds:
            raise ProcessError("the run that the sandbox's network was for is over")
        return self._fds

    def close(self) -> None:
        """Nothing is started here any more. Once is enough."""
        self.listening.close()
        fds, self._fds = self._fds, ()
        for fd in fds:
            os.close(fd)


async def make_namespace(me: Actor, *, as_root: bool) -> Namespace:
    """Make one.

    Raises:
        ProcessError: it can't be made.
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
