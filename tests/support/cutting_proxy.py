"""A link between a worker and its database that can be cut: both ways, one way, or slowed down. Threads and sockets."""

from __future__ import annotations

import selectors
import socket
import threading
import time
from contextlib import suppress


class Link:
    """Listens on a port of 127.0.0.1, and passes on to a port there.

    Attributes:
        port: where it listens.
        up, down: whether what goes to the database, and what comes from it, is passed on; else it waits here.
        delay: seconds for which each piece is held up.
    """

    def __init__(self, to: int) -> None:
        self.up = self.down = True
        self.delay = 0.0
        self._to = to
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        self._ended = False
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Nothing passes, in either direction."""
        self.up = self.down = False

    def heal(self) -> None:
        """All passes again, also what has waited."""
        self.up = self.down = True

    def reset(self) -> None:
        """Close all connections that are open."""
        for each in self._open:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def end(self) -> None:
        self._ended = True
        self._listener.shutdown(socket.SHUT_RDWR)  # else who waits for the next one waits on
        self._listener.close()
        self.reset()

    def _accept(self) -> None:
        while True:
            try:
                here, _ = self._listener.accept()
                there = socket.create_connection(("127.0.0.1", self._to))
            except OSError:
                if self._ended:
                    return
                with suppress(OSError, UnboundLocalError):
                    here.close()
                continue
            self._open += [here, there]
            threading.Thread(target=self._pass, args=(here, there), daemon=True).start()

    def _pass(self, here: socket.socket, there: socket.socket) -> None:
        with selectors.DefaultSelector() as ready, here, there:
            ready.register(here, selectors.EVENT_READ, (there, "up"))
            ready.register(there, selectors.EVENT_READ, (here, "down"))
            with suppress(OSError):
                while not self._ended:
                    found = ready.select(0.05)
                    waits = False
                    for key, _ in found:
                        to, way = key.data
                        if not getattr(self, way):
                            waits = True
                            continue
                        assert isinstance(key.fileobj, socket.socket)
                        data = key.fileobj.recv(65_536)
                        if not data:
                            return
                        time.sleep(self.delay)
                        to.sendall(data)
                    if waits:
                        time.sleep(0.02)
