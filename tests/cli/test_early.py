"""What is typed before its question can be read answers nothing: real terminals, by every way to a prompt."""

from __future__ import annotations

import os
import subprocess
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from prompt_toolkit.input import create_input
from prompt_toolkit.output import DummyOutput
from prompt_toolkit.output.vt100 import Vt100_Output
from support.control_server import ControlServer
from support.screen import Screen
from support.starter import CALLBOARD
from support.waiting import PATIENCE, until

from callboard.cli.render.dialog import Dialog
from callboard.cli.render.keyboard import READING, Early
from callboard.protocol.kernel.questions import Question

COMMAND = CALLBOARD

GATE = """
name: gate
start: gate
nodes:
  gate:
    type: approval
    question: Go?
    options: ["yes", "no"]
    routes: {"yes": end, "no": end}
    on_other: end
    state_updates: {choice: "{{choice}}"}
  end: {type: end, output: "{{choice}}"}
"""

NAME = """
name: greet
start: who
nodes:
  who: {type: input, question: Who?, state_updates: {who: "{{input}}"}, next: end}
  end: {type: end, output: "{{who}}"}
"""

BOUND = """
name: bound
start: end
variables: [{name: project, description: Which project}]
nodes: {end: {type: end, output: done}}
"""


class Time:
    """A clock that is set by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


async def started(nursery: trio.Nursery, screen: Screen, *arguments: str, **more: str) -> trio.Process:
    return await nursery.start(
        lambda task_status: trio.run_process(
            [*COMMAND, *arguments],
            stdin=screen.slave,
            stderr=screen.slave,
            stdout=subprocess.PIPE,
            env={**os.environ, "TERM": "xterm-256color", "NO_COLOR": "1", **more},
            check=False,
            task_status=task_status,
        )
    )


async def output(process: trio.Process) -> str:
    assert process.stdout is not None
    text = b"".join([piece async for piece in process.stdout]).decode()
    await process.wait()
    return text


# --- typed before there was a question ----------------------------------------------------------------------


async def test_a_yes_typed_before_a_permission_question_runs_nothing(
    nursery: trio.Nursery, screen: Screen, tmp_path: Path
) -> None:
    made = tmp_path / "made"
    screen.press("y\ryes\r1\r")
    call = ["tools", "call", "fs_mkdir", "--root", str(tmp_path), "--json", f'{{"path": "{made}"}}']
    process = await started(nursery, screen, *call, CALLBOARD_CONFIG_DIR=str(tmp_path))
    await screen.shows(r"Allow fs_mkdir\?[\s\S]*then Enter")
    assert "= yes" not in screen.text
    screen.press("\r")  # the cursor stands on no
    assert await process.wait() == 1
    assert not made.exists()


@pytest.mark.parametrize(
    ("graph", "ready", "keys", "out"),
    [(GATE, r"Go\?[\s\S]*then enter", "\r", "yes\n"), (NAME, r"Who\?[\s\S]*  >", "Ada\r", "Ada\n")],
    ids=["approval", "input"],
)
async def test_what_was_typed_before_a_node_asks_is_no_answer(
    nursery: trio.Nursery, screen: Screen, tmp_path: Path, graph: str, ready: str, keys: str, out: str
) -> None:
    (tmp_path / "graph.yaml").write_text(graph)
    screen.press("stray\rno\r")
    process = await started(nursery, screen, "run", str(tmp_path))
    await screen.shows(ready)
    screen.press(keys)
    assert await output(process) == out


async def test_what_was_typed_before_a_variable_is_asked_for_is_not_its_value(
    nursery: trio.Nursery, screen: Screen, tmp_path: Path
) -> None:
    (tmp_path / "graph.yaml").write_text(BOUND)
    screen.press("stray\r")
    process = await started(nursery, screen, "run", str(tmp_path))
    await screen.shows(r"Which[\s\S]*\)\r\n[\s\S]*  >")
    screen.press("moon\r")
    await screen.shows(r"= moon")
    assert await process.wait() == 0
    assert "= stray" not in screen.text


@pytest.mark.parametrize("command", ["attach", "answer"])
async def test_what_was_typed_before_a_question_of_a_server_is_no_answer(
    control_server: ControlServer, nursery: trio.Nursery, screen: Screen, command: str
) -> None:
    def begin() -> str:
        control_server.agent("gate", GATE.replace("name: gate\n", ""))
        run = control_server.start("gate", "Go").run
        control_server.asked(run)
        return run

    run = await trio.to_thread.run_sync(begin)
    screen.press("no\r2\r")
    process = await started(nursery, screen, command, run)
    await screen.shows(r"Go\?[\s\S]*then enter")
    assert "= no" not in screen.text
    screen.press("\r")
    await output(process)
    assert (await trio.to_thread.run_sync(control_server.ended, run)).output == "yes"


# --- typed while the question came up -----------------------------------------------------------------------


@pytest.fixture
def terminal(screen: Screen) -> Iterator[tuple[object, object, object]]:
    """The slave's end of a pseudo-terminal, as a dialog wants it."""
    with open(screen.slave, closefd=False) as keys, open(screen.slave, "w", closefd=False) as shown:
        output = Vt100_Output.from_pty(shown, term="xterm")
        output.enable_cpr = False
        yield create_input(keys), output, shown


def asked(kind: str, **more: object) -> Question:
    return Question(**{"id": "q", "actor": "", "text": "Do it?", "kind": kind} | more)


@pytest.mark.parametrize(
    ("question", "typed", "pressed", "answer"),
    [
        (asked("choice", options=("yes", "always", "no"), permission="execute_command"), "y\r", "\r", "no"),
        (asked("choice", options=("yes", "no")), "no\r", "\r", "yes"),
        (asked("choice", options=("accept", "decline"), free=False, people=True), "\r", "2\r", "decline"),
        (asked("confirm", default="no"), "y\r", "\r", "no"),
        (asked("checkbox", options=("a", "b")), " \r", "\r", []),
    ],
    ids=["permission", "approval", "form of an MCP server", "confirm", "checkbox"],
)
async def test_keys_that_come_with_the_question_do_not_count_and_it_says_so(
    nursery: trio.Nursery,
    screen: Screen,
    terminal: object,
    question: Question,
    typed: str,
    pressed: str,
    answer: object,
) -> None:
    clock, values = Time(), []
    dialog = Dialog(question, terminal=terminal, clock=clock)  # type: ignore[arg-type] - the fixture's triple

    async def ask() -> None:
        values.append(await trio.to_thread.run_sync(dialog.run, abandon_on_cancel=True))

    nursery.start_soon(ask)
    await screen.shows(r"Do it\?")
    await until(lambda: not screen.modes() & termios.ICANON)  # raw: from here on the dialog reads
    screen.press(typed)
    await until(lambda: dialog.early is not None and dialog.early.dropped == len(typed))
    assert "then" not in screen.text.rpartition("Do it")[2]
    clock.now = 10.0
    await screen.shows(r"keys pressed before this line appeared")
    for key in pressed:
        screen.press(key)
    await until(lambda: values)
    assert values == [answer]


async def test_ctrl_c_counts_at_any_time(nursery: trio.Nursery, screen: Screen, terminal: object) -> None:
    dialog = Dialog(asked("confirm"), terminal=terminal, clock=Time())  # type: ignore[arg-type] - as above
    ended = trio.Event()

    async def ask() -> None:
        with pytest.raises(KeyboardInterrupt):
            await trio.to_thread.run_sync(dialog.run, abandon_on_cancel=True)
        ended.set()

    nursery.start_soon(ask)
    await until(lambda: not screen.modes() & termios.ICANON)
    screen.press("\x03")
    with trio.fail_after(PATIENCE):
        await ended.wait()


async def test_keys_left_over_from_one_question_do_not_answer_the_next(
    nursery: trio.Nursery, screen: Screen, terminal: object
) -> None:
    values: list[object] = []

    async def ask() -> None:
        for number in range(2):
            question = asked("choice", text=f"Question {number}?", options=("yes", "no"))
            dialog = Dialog(question, terminal=terminal)  # type: ignore[arg-type] - as above
            values.append(await trio.to_thread.run_sync(dialog.run, abandon_on_cancel=True))

    nursery.start_soon(ask)
    await screen.shows(r"Question 0\?[\s\S]*then enter")
    screen.press("\r2\r2\r")  # one read: prompt_toolkit keeps what is behind the first Enter
    await screen.shows(r"Question 1\?[\s\S]*then enter")
    screen.press("\r")
    await until(lambda: len(values) == 2)
    assert values == ["yes", "yes"]


# --- the rule -----------------------------------------------------------------------------------------------


def test_a_word_whose_first_letter_came_too_early_comes_too_early_as_a_whole(terminal: object) -> None:
    clock = Time()
    early = Early(terminal[0], clock)  # type: ignore[index] - as above
    assert early.remaining > 0
    early.question_displayed()
    clock.now = READING - 0.01
    assert early.remaining > 0
    early.drop()  # the `y`
    clock.now = READING + 0.1
    assert early.remaining > 0  # the Enter behind it
    early.drop()
    clock.now += READING
    assert early.remaining == 0


def test_what_comes_from_a_pipe_counts_at_once() -> None:
    from prompt_toolkit.input import create_pipe_input

    with create_pipe_input() as keys:
        keys.send_text("\r")
        early = Early(keys)
        early.drop_pending()
        assert early.remaining == 0
        question = asked("choice", options=("yes", "no"))
        with Path(os.devnull).open("w") as shown:
            assert Dialog(question, terminal=(keys, DummyOutput(), shown)).run() == "yes"
