"""An error as data keeps what its readers need."""

from __future__ import annotations

import traceback

import msgspec

from callboard.protocol.errors import NodeFailed, RunFailed
from callboard.protocol.messages import LONGEST_CAUSE, Failure


def _copied(failure: Failure) -> Failure:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(failure), type=Failure)


def test_the_causes_of_an_error_are_told_wherever_it_is_shown() -> None:
    inner = NodeFailed("the node failed")
    inner.__cause__ = ZeroDivisionError("division by zero")
    outer = RunFailed("the run failed")
    outer.__cause__ = _copied(Failure.of(inner)).restore()
    failure = _copied(Failure.of(outer))
    error = failure.restore()
    assert type(error) is RunFailed
    assert [line.strip() for line in traceback.format_exception_only(error)[1:]] == [
        "caused by NodeFailed: the node failed",
        "caused by ZeroDivisionError: division by zero",
    ]
    assert Failure.of(error) == failure


def test_a_long_cause_is_cut() -> None:
    error = RunFailed("x")
    error.__cause__ = ValueError("y" * 10_000)
    (note,) = Failure.of(error).attributes["__notes__"]
    assert len(note) == LONGEST_CAUSE
