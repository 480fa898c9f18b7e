"""pykka: a thread per actor, unbounded queues. Its CPU is that of all its threads."""

from __future__ import annotations

from typing import Any

from _serve import absent, clock, micro, serve

try:
    import pykka
except ImportError as error:
    absent(error)


class Echo(pykka.ThreadingActor):
    def on_receive(self, message: Any) -> Any:
        return message


def spawn(n: int) -> float:
    began = clock()
    refs = [Echo.start() for _ in range(n)]
    spent = micro(began, n)
    del refs
    pykka.ActorRegistry.stop_all()
    return spent


def stop(n: int) -> float:
    refs = [Echo.start() for _ in range(n)]
    began = clock()
    pykka.ActorRegistry.stop_all()
    spent = micro(began, n)
    del refs
    return spent


def tell(n: int) -> float:
    ref = Echo.start()
    began = clock()
    for number in range(n):
        ref.tell(number)
    ref.ask(n)
    spent = micro(began, n)
    ref.stop()
    return spent


def ask(n: int) -> float:
    return _ask(n, None)


def ask_timeout(n: int) -> float:
    return _ask(n, 30.0)


def _ask(n: int, timeout: float | None) -> float:
    ref = Echo.start()
    ref.ask(0)
    began = clock()
    for number in range(n):
        ref.ask(number, timeout=timeout)
    spent = micro(began, n)
    ref.stop()
    return spent


if __name__ == "__main__":
    serve({case.__name__: case for case in (spawn, stop, tell, ask, ask_timeout)})
