"""Every decider that a test plays is played a second time beside the first, by its messages alone.

The messages go through msgpack on the way, so what the second one is told is what a journal could hold. At every
message, and so at every prefix of the run, it has to say the same as the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import msgspec

from callboard.actors.engine.driver import Decider, recorder
from callboard.protocol.effects import Effect


class Twin:
    """The second decider."""

    def __init__(self, decider: Decider, afresh: Callable[[], Decider], differences: list[str]) -> None:
        self.first = decider
        self.twin = afresh()
        self._begun = False
        self._differences = differences
        self.told = 0

    def wrote(self, message: Any, effects: list[Effect]) -> None:
        """What the first was told and said: the second has to say it too."""
        self.told += 1
        copy = message
        with suppress(OverflowError):  # whole numbers of more than 64 bits are not msgpack's
            copy = msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=type(message))
        self.twin.heard = self.first.heard
        said = self.twin.on(copy) if self._begun else self.twin.begin(copy)
        self._begun = True
        if said != effects and _differ(plain(said), plain(effects)):
            self._differences.append(f"told {message}\n  the first said {effects}\n  its twin says  {said}")


def plain(effects: list[Effect]) -> Any:
    """Effects as values that can be compared: errors have no equality of their own."""
    return msgspec.to_builtins(effects, enc_hook=repr, str_keys=True)


def _differ(said: Any, effects: Any) -> bool:
    return bool(said != effects) and repr(said) != repr(effects)  # NaN equals nothing


@contextmanager
def twins() -> Iterator[list[Twin]]:
    """All deciders that are played in this block have twins, which are yielded.

    Raises:
        AssertionError: one of them said something else.
    """
    differences: list[str] = []
    made: list[Twin] = []

    def tape(decider: Decider, afresh: Callable[[], Decider]) -> Twin:
        made.append(Twin(decider, afresh, differences))
        return made[-1]

    token = recorder.set(tape)
    try:
        yield made
    finally:
        recorder.reset(token)
    assert differences == [], "\n".join(differences)
