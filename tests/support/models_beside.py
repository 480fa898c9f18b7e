"""The scripted model server in a thread of its own, for tests that wait without trio and for several tests at once."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import trio

from support.fake_models import FakeModels, listening
from support.waiting import PATIENCE


@contextmanager
def models_beside() -> Iterator[FakeModels]:
    """One that answers as long as this lasts."""
    ready: queue.Queue[tuple[FakeModels, trio.lowlevel.TrioToken, trio.CancelScope]] = queue.Queue()

    async def serve() -> None:
        listener, port = listening()
        models = FakeModels(port)
        with trio.CancelScope() as scope:
            ready.put((models, trio.lowlevel.current_trio_token(), scope))
            await models.serve(listener)

    thread = threading.Thread(target=trio.run, args=(serve,), daemon=True)
    thread.start()
    models, token, scope = ready.get(timeout=PATIENCE)
    try:
        yield models
    finally:
        token.run_sync_soon(scope.cancel)
        thread.join(PATIENCE)
