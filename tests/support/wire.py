"""The way to a server, which can be cut and mended."""

from __future__ import annotations

import trio


class Wire:
    """A way to a server that can be cut."""

    def __init__(self, port: int) -> None:
        self.port = 0
        self._server = port
        self._open: set[trio.CancelScope] = set()
        self._is_cut = False

    async def carry(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Until cancelled."""
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self.port = listeners[0].socket.getsockname()[1]
        task_status.started()
        await trio.serve_listeners(self._accept, listeners)

    def cut(self) -> None:
        """Nothing comes through, or in, until `mend`."""
        self._is_cut = True
        for scope in self._open:
            scope.cancel()

    def mend(self) -> None:
        """It may be used again."""
        self._is_cut = False

    async def _accept(self, client: trio.SocketStream) -> None:
        if self._is_cut:
            return
        server = await trio.open_tcp_stream("127.0.0.1", self._server)
        async with client, server:
            with trio.CancelScope() as scope:
                self._open.add(scope)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._pipe, server, client, scope)
                    await self._pipe(client, server, scope)
            self._open.discard(scope)

    async def _pipe(self, one: trio.SocketStream, other: trio.SocketStream, scope: trio.CancelScope) -> None:
        try:
            async for piece in one:
                await other.send_all(piece)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        scope.cancel()
