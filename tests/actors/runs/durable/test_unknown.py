"""What comes of a call that was under way at a kill, by what its tool says and by what the run wants."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from lives import Lives
from support.fake_models import FakeModels, Reply, Request
from support.starter import CALLBOARD, forked

import callboard
from callboard.actors.runs.durable import interrupted
from callboard.protocol.events import CallUnknown, Event
from callboard.protocol.kernel.questions import Question

CALLING = Path(__file__).with_name("calling.py")


class KilledProgram:
    """Where the program of `calling` is played, killed, and gone on with."""

    def __init__(self, home: Path, models: FakeModels) -> None:
        self.models = models
        self._done = home / "done"
        self._config = models.config_dir(home / "config")
        self._environ = {**os.environ, "XDG_STATE_HOME": str(home / "state")}
        models.answer_with(self._say)

    @staticmethod
    def _say(request: Request) -> Reply:
        return Reply(text="over") if request.results else Reply(calls=[("work", {"name": "once"})])

    async def play(self, **order: Any) -> dict[str, Any] | None:
        """What it says at its end; None if it was killed."""
        order["config"] = str(self._config)
        command = [*forked(CALLING), str(self._done), json.dumps(order)]
        program = await trio.run_process(command, env=self._environ, capture_stdout=True, check=False)
        if program.returncode == -9:
            return None
        said: dict[str, Any] = json.loads(program.stdout)
        return said

    @property
    def done(self) -> list[str]:
        """What was done to the world."""
        return self._done.read_text().splitlines()

    @property
    def read(self) -> str:
        """What the model has read of the call."""
        return str(self.models.requests[-1].results)


@pytest.fixture
def killed_program(tmp_path: Path, fake_model: FakeModels) -> KilledProgram:
    return KilledProgram(tmp_path, fake_model)


@pytest.mark.parametrize(
    ("effect", "then", "now", "times", "read"),
    [
        (None, None, None, 1, "unknown"),
        pytest.param("write", None, None, 1, "unknown", marks=pytest.mark.soak),
        ("read", None, None, 2, "worked"),
        ("idempotent", None, None, 2, "worked"),
        ("keyed", None, None, 2, "worked"),
        pytest.param(None, "again", None, 2, "worked", marks=pytest.mark.soak),
        (None, "again", "tell", 1, "unknown"),
        pytest.param(None, None, "again", 2, "worked", marks=pytest.mark.soak),
        pytest.param("read", None, "fail", 2, "worked", marks=pytest.mark.soak),
    ],
)
@pytest.mark.sample(3)
async def test_a_call_is_made_again_or_told_as_its_tool_and_the_run_say(
    killed_program: KilledProgram, effect: str | None, then: str | None, now: str | None, times: int, read: str
) -> None:
    assert await killed_program.play(effect=effect, then=then) is None
    said = await killed_program.play(effect=effect, now=now, resume=True)
    assert said == {"output": "over", "status": "done", "error": None}
    assert len(killed_program.done) == times
    assert read in killed_program.read


async def test_where_the_run_wants_it_the_agent_fails(killed_program: KilledProgram) -> None:
    assert await killed_program.play() is None
    said = await killed_program.play(now="fail", resume=True)
    assert said is not None
    assert (said["status"], said["error"]) == ("failed", "unknown_outcome")
    assert killed_program.done == ["once"]


async def test_where_a_person_is_to_be_asked_and_none_is_there_the_agent_fails(killed_program: KilledProgram) -> None:
    assert await killed_program.play(then="ask") is None
    said = await killed_program.play(resume=True)
    assert said is not None
    assert said["error"] == "unknown_outcome"
    assert killed_program.done == ["once"]


async def test_a_keyed_call_has_the_same_key_however_often_it_is_made_and_its_model_knows_nothing_of_it(
    killed_program: KilledProgram,
) -> None:
    for resume in (False, True, True):
        assert await killed_program.play(effect="keyed", kills=3, resume=resume) is None
    assert (await killed_program.play(effect="keyed", kills=3, resume=True)) is not None
    assert len(killed_program.done) == 4
    assert len(set(killed_program.done)) == 1
    assert b"call_key" not in killed_program.models.requests[0].body


async def test_a_run_with_functions_does_not_go_on_without_them(killed_program: KilledProgram, tmp_path: Path) -> None:
    assert await killed_program.play() is None
    program = await trio.run_process(
        [*CALLBOARD, "resume"],
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")},
        capture_stdout=True,
        capture_stderr=True,
        check=False,
    )
    assert program.returncode != 0
    assert b"callboard.resume('run-1', tools=[...])" in program.stderr
    assert (await killed_program.play(resume=True)) is not None


SCRIPT = """
name: g
start: one
nodes:
  one: {type: script, script: one.sh, %s next: two}
  two: {type: script, script: two.sh, next: done}
  done: {type: end, output: "{{said}}"}
"""


class Clerk:
    """A person who gives these answers, one to each question, and remembers what was asked."""

    name = "clerk"

    def __init__(self, root: callboard.Root, answers: list[str]) -> None:
        self._root = root
        self._answers = answers
        self.asked_about: list[Question] = []

    def asked(self, question: Question) -> None:
        self.asked_about.append(question)
        self._root.kernel.questions.answer(question.id, self._answers.pop(0), by="clerk")

    def closed(self, question_id: str, by: str) -> None:
        pass


@pytest.mark.parametrize(
    ("key", "answers", "times", "output"),
    [
        ("", ["again"], 2, "from the script"),
        ("", ["neither", '{"said": "from a person"}'], 1, "from a person"),
        ("on_unknown: again,", [], 2, "from the script"),
        ("on_unknown: fail,", [], 1, "unknown_outcome"),
        ("on_unknown: fail, on_error: continue,", [], 1, ""),
        ("on_unknown: fail, fallback: two,", [], 1, ""),
    ],
)
async def test_a_script_is_done_again_or_left_out_as_its_node_or_a_person_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, answers: list[str], times: int, output: str
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "graph.yaml").write_text(SCRIPT % key)
    (tmp_path / "one.sh").write_text(
        f"echo once >> {tmp_path}/done\n"
        f"if [ $(wc -l < {tmp_path}/done) = 1 ]; then kill -9 $(tr -dc 0-9 < /proc/$PPID/cmdline); sleep 60; fi\n"
        """echo '{"said": "from the script"}'\n"""
    )
    (tmp_path / "two.sh").write_text(f"echo after >> {tmp_path}/after\necho '{{}}'\n")
    command = [*CALLBOARD, "run", str(tmp_path / "graph.yaml"), "--durable", "--no-input"]
    program = await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False)
    assert program.returncode == -9
    (left,) = interrupted(os.environ)
    asked_for = len(answers)
    async with callboard.Root(config_dir=tmp_path) as root:
        clerk = Clerk(root, answers)
        events: list[Event] = []
        with root.kernel.questions.attach(clerk):
            outcome = await callboard.resume(left.run, on_event=events.append, root=root)
    assert (outcome.output if outcome.error is None else outcome.error.code) == output, outcome.error
    assert len((tmp_path / "done").read_text().splitlines()) == times
    assert (tmp_path / "after").exists() == (output != "unknown_outcome"), "what needs the node was executed"
    assert len(clerk.asked_about) == asked_for
    (told,) = [event.data for event in events if isinstance(event.data, CallUnknown)]
    assert (told.then == "again") == (times == 2)


async def test_the_time_of_a_script_does_not_run_while_a_person_is_asked_about_it(
    tmp_path: Path, fake_model: FakeModels, monkeypatch: pytest.MonkeyPatch, mock_clock: trio.testing.MockClock
) -> None:
    mock_clock.rate = 1.0
    lives = Lives(tmp_path, fake_model, monkeypatch)
    home = lives.config / "agents" / "g"
    home.mkdir(parents=True)
    (home / "graph.yaml").write_text(SCRIPT % "timeout: 60,")
    (home / "two.sh").write_text("echo '{}'\n")
    (home / "one.sh").write_text(f"[ -e {tmp_path}/second ] || sleep 60\n" + """echo '{"said": "in time"}'\n""")
    await lives.begin("g", until=lambda event: event.kind == "tool.call.started", answers={})
    (tmp_path / "second").touch()

    class Slow(Clerk):
        async def answer(self, question: Question) -> None:
            mock_clock.jump(70)
            self._root.kernel.questions.answer(question.id, "again", by="clerk")

        def asked(self, question: Question) -> None:
            nursery.start_soon(self.answer, question)

    async with callboard.Root(config_dir=lives.config) as root, trio.open_nursery() as nursery:
        with root.kernel.questions.attach(Slow(root, [])):
            outcome = await callboard.resume("run-1", root=root)
    assert outcome.output == "in time", outcome.error
