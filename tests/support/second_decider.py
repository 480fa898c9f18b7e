"""Every decider that a test plays is played a second time beside the first, by its messages alone.

The messages go through msgpack on the way, so what the second one is told is what a journal could hold. At every
message, and so at every prefix of the run, it has to say the same as the first.

A third is told the rows that a durable run would have (`engine/recovery`), up to the end and up to somewhere before it:
what is open then, and how it ended, has to be what the first one left open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import msgspec

from callboard.actors.engine.driver import Decider, fold, recorder
from callboard.actors.work.journal.actor_journal import JournalPlayer
from callboard.protocol.effects import CancelChild, Effect, Finish, InPlace, Spawn, Work
from callboard.protocol.journal import CAN_BE_KEPT, MessageRow, decode, encode
from callboard.protocol.messages import ChildEnded, EscalationClosed, EscalationNoted, Idle, Interrupted, WorkDone

MOST = 2_000
"""Messages of one decider that are kept for the third."""


class Twin:
    """The second decider."""

    def __init__(self, decider: Decider, afresh: Callable[[], Decider], differences: list[str]) -> None:
        self.first = decider
        self.twin = afresh()
        self._begun = False
        self._differences = differences
        self.told = 0
        self._afresh = afresh
        self._end: Any = None
        self._tape: list[tuple[Any, list[Effect]]] = []

    def wrote(self, message: Any, effects: list[Effect]) -> None:
        """What the first was told and said: the second has to say it too."""
        self.told += 1
        if any(isinstance(effect, Finish) for effect in effects):
            self._end = plain([effect for effect in effects if isinstance(effect, Finish)])  # others change it later
        if self.told <= MOST:
            self._tape.append((message, effects))
        copy = message
        with suppress(OverflowError, TypeError):  # whole numbers of more than 64 bits, and what is no data at all
            copy = msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=type(message))
        self.twin.heard = self.first.heard
        said = self.twin.on(copy) if self._begun else self.twin.begin(copy)
        self._begun = True
        if said != effects and _differ(plain(said), plain(effects)):
            self._differences.append(f"told {message}\n  the first said {effects}\n  its twin says  {said}")

    def check_past(self) -> None:
        """What it was told is told to another as the past of a durable run."""
        if self._tape and not any(type(message) not in CAN_BE_KEPT | {Interrupted} for message, _ in self._tape):
            for length in {len(self._tape), 1 + hash(str(self._tape[-1][0])) % len(self._tape)}:
                self._check_prefix(self._tape[:length])

    def _check_prefix(self, tape: list[tuple[Any, list[Effect]]]) -> None:
        rows = _Rows()
        player = JournalPlayer(rows, "", [])  # type: ignore[arg-type]
        for message, effects in tape:
            player.wrote(message, effects)
        if rows.spoilt:
            return  # whole numbers beyond 64 bits in keys, errors that hold objects
        tape = [each for each in tape if type(each[0]) is not Interrupted]  # what was under way is so after a kill
        while type(tape[-1][0]) is Idle and any(isinstance(effect, InPlace) for effect in tape[-1][1]):
            tape = tape[:-1]  # it is not kept until something follows
        player.past = [told for told in rows.rows if isinstance(told, MessageRow)]
        left = fold(self._afresh(), player, tape[0][0])
        wanted = _open(tape)
        found = (list(left.work), None if left.in_place is None else left.in_place.key, left.finish is not None)
        if found != wanted:
            self._differences.append(f"its past leaves {found} open, and not {wanted}: {tape}")
        begun, asked = left.family.children.values(), left.family.escalations
        family = ([(each.spawned.id, each.cancelled) for each in begun if each is not None], list(asked))
        if family != _family(tape):
            self._differences.append(f"its past leaves children {family}, and not {_family(tape)}: {tape}")
        under_way = _open(
            [(message, [each for each in said if not isinstance(each, Finish)]) for message, said in tape]
        )
        if left.finish is None or under_way[0] or under_way[1] is not None:
            return  # how long that took which was interrupted is not known to its past
        ended = plain([left.finish])
        if ended != self._end and repr(ended) != repr(self._end):
            self._differences.append(f"its past ends with {ended}, and not with {self._end}")


class _Rows:
    """What would be kept."""

    def __init__(self) -> None:
        self.run = self
        self.rows: list[Any] = []
        self.now = 0
        self.spoilt = False

    def append(self, _: str, row: Any) -> None:
        try:
            self.rows.append(decode(encode(row)))
        except (TypeError, ValueError, RecursionError):
            self.spoilt = True

    def append_message(self, path: str, message: Any) -> None:
        self.append(path, MessageRow(0, message))

    def spoil(self, _: str) -> None:
        self.spoilt = True

    def refuse(self, _: Exception) -> None:
        """It is raised as well."""


def _open(tape: list[tuple[Any, list[Effect]]]) -> tuple[list[int], int | None, bool]:
    """Keys of the work that is open after this, the one in place, and whether it is over."""
    work: dict[int, None] = {}
    in_place, over = None, False
    for message, effects in tape:
        if isinstance(message, WorkDone):
            work.pop(message.key, None)
            in_place = None if message.key == in_place else in_place
        for effect in effects:
            if isinstance(effect, InPlace):
                in_place = effect.key
            elif isinstance(effect, Work):
                work[effect.key] = None
            over = over or isinstance(effect, Finish)
    return ([] if over else list(work)), in_place, over


def _family(tape: list[tuple[Any, list[Effect]]]) -> tuple[list[tuple[str, bool]], list[str]]:
    """The children that live after this, whether each is to be interrupted, and the questions that are open."""
    children: dict[str, bool] = {}
    asked: list[str] = []
    for message, effects in tape:
        if isinstance(message, ChildEnded):
            del children[message.record.id]
        elif isinstance(message, EscalationNoted):
            asked.append(message.id)
        elif isinstance(message, EscalationClosed):
            asked.remove(message.id)
        for effect in effects:
            if isinstance(effect, Spawn):
                children[effect.id] = False
            elif isinstance(effect, CancelChild):
                children[effect.id] = True
    return list(children.items()), asked


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
    for twin in made:
        twin.check_past()
    assert differences == [], "\n".join(differences)
