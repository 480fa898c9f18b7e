"""Messages that an actor accepts: frozen structs; type checkers accept those of its own classes only."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from support.messages import says
from trio.testing import wait_all_tasks_blocked

from callboard.supervisors import Actor, Message, Ref, Root, mailbox

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "kernel" / "workers.py"


class Ping(Message, frozen=True):
    n: int


class Plain(msgspec.Struct, frozen=True):
    n: int


class Loose(msgspec.Struct):
    n: int


@dataclasses.dataclass(frozen=True)
class Data:
    n: int


async def still(me: Actor) -> None:
    me.started()
    await trio.sleep_forever()


REFUSED = [
    ("hello", says("supervisors.mailbox.check_message.3", to="/still", __name__="str", message="hello")),
    (7, says("supervisors.mailbox.check_message.3")),
    ({"n": 1}, says("supervisors.mailbox.check_message.3", __name__="dict")),
    (None, says("supervisors.mailbox.check_message.3", __name__="NoneType")),
    (Data(1), says("supervisors.mailbox.check_message.3", __name__="Data")),
    (Loose(1), says("supervisors.mailbox.check_message.2", __name__="Loose", __name___2="Loose")),
    (Ping, says("supervisors.mailbox.check_message", __name__="Ping")),
]


@pytest.mark.parametrize(("wrong", "says"), REFUSED, ids=lambda value: "" if isinstance(value, str) else None)
async def test_103_what_is_no_frozen_struct_is_refused_however_it_is_sent(root: Root, wrong: Any, says: str) -> None:
    ref: Ref[Any] = root.spawn(still)
    for _ in range(2):  # the second one could go the short way
        with pytest.raises(TypeError, match=says):
            await ref.tell(wrong)
        with pytest.raises(TypeError, match=says):
            ref.tell_nowait(wrong)
        with pytest.raises(TypeError, match=says):
            ref.signal(wrong)
        with pytest.raises(TypeError, match=says):
            await ref.ask(wrong)
        with pytest.raises(TypeError, match=says):
            ref._actor.tell_later(1, wrong)
        assert await ref.tell(Ping(1))
    assert list(ref._actor.mailbox.mail) == [Ping(1)] * 2
    assert not ref._actor.mailbox.signals


async def test_103_any_frozen_struct_may_be_told_in_any_mixture(root: Root) -> None:
    got: list[object] = []

    async def body(me: Actor[Ping | Plain]) -> None:
        async for message in me:
            got.append(message)  # noqa: PERF401 - the loop never ends

    ref = root.spawn(body)
    sent = [Ping(1), Plain(2), Ping(3), Ping(4), Plain(5)]
    for message in sent:
        await ref.tell(message)
    await wait_all_tasks_blocked()
    assert got == sent


async def test_a_program_that_makes_classes_without_end_does_not_fill_the_memory(
    root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mailbox, "MAX_CHECKED_TYPES", 10)
    ref = root.spawn(still, bound=1000)
    for number in range(100):
        await ref.tell(msgspec.defstruct(f"Made{number}", [], frozen=True)())
    assert len(mailbox.checked_types) <= 10


def test_the_types_of_refs_may_be_written_where_they_are_read_at_run_time() -> None:
    assert repr(Ref[Ping]).endswith("Ping]")
    assert Ref[Ping, int] != Ref[Ping]
    assert Actor[Ping] is not Actor


MYPY = """
[mypy]
strict = true

# `callboard` itself imports its whole API, of which the kernel needs nothing: following it takes six times as long.
[mypy-callboard.actors.*,callboard.cli.*]
follow_imports = skip
"""


def mypy(program: Path) -> subprocess.CompletedProcess[str]:
    config = program.with_name("mypy.ini")
    config.write_text(MYPY)
    return subprocess.run(
        [sys.executable, "-m", "mypy", f"--config-file={config}", f"--cache-dir={os.devnull}", str(program)],
        capture_output=True,
        text=True,
        env={**os.environ, "MYPYPATH": str(ROOT / ".types")},
        cwd=program.parent,
        timeout=600,
    )


WRONG = """
class Wrong(Message, frozen=True):
    pass


async def wrong(ref: Ref[Job]) -> None:
    await ref.tell(Wrong())
    ref.tell_nowait("a text")
    await ref.ask(Wrong())


async def inferred(me: Actor) -> None:
    ref = me.spawn(worker)
    await ref.tell(Wrong())
    await ref.tell(Job(1))
    me.spawn(typed).result().nothing
    me.spawn(typed, 1)


async def typed(me: Actor[Job]) -> int:
    job = await me.receive()
    job.no_such_field
    return job.number
"""


@pytest.mark.timeout(660)  # mypy takes 10 s where it has the cores for itself
@pytest.mark.full
def test_mypy_finds_a_wrong_message_in_the_example_and_nothing_else(tmp_path: Path) -> None:
    program = tmp_path / "workers.py"
    program.write_text(EXAMPLE.read_text() + WRONG)
    lines = len(EXAMPLE.read_text().splitlines())
    done = mypy(program)
    found = [line.split(": ", 2) for line in done.stdout.splitlines() if ": error: " in line]
    assert [(int(where.split(":")[1]) - lines, what.rpartition("[")[2]) for where, _, what in found] == [
        (7, "arg-type]"),
        (8, "arg-type]"),
        (9, "arg-type]"),
        (14, "arg-type]"),
        (16, "attr-defined]"),
        (17, "arg-type]"),
        (22, "attr-defined]"),
    ], done.stdout
