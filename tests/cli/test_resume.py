"""`callboard run --durable`, killed, and `callboard resume`: as a user does it, in processes of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
import trio
from support.fake_models import FakeModels, Reply
from support.messages import has_message
from support.starter import CALLBOARD
from support.waiting import until

from callboard.cli import main
from callboard.protocol.journal import MessageRow, decode
from callboard.protocol.messages import NodeDone
from callboard.supervisors.journal.reading import read_run, stored_runs

GRAPH = """
name: g
start: one
nodes:
  one: {type: script, script: one.sh, next: two}
  two: {type: llm, prompt: "TWO {{initial_prompt}}", state_updates: {two: "{{output}}"}, next: three}
  three: {type: llm, prompt: "THREE {{two}}", state_updates: {three: "{{output}}"}, next: done}
  done: {type: end, output: "{{two}} {{three}} VERSION"}
"""


class ResumeTerminal:
    """Where runs are begun at a terminal, killed, and gone on with."""

    def __init__(self, home: Path, models: FakeModels) -> None:
        self.home = home
        self.models = models
        self.config = models.config_dir(home / "config")
        self.write("first")
        self._environ = {**os.environ, "XDG_STATE_HOME": str(home / "state")}
        self._environ.pop("CALLBOARD_CONFIG_DIR", None)

    def write(self, version: str) -> None:
        agent = self.config / "agents" / "g"
        agent.mkdir(parents=True, exist_ok=True)
        (agent / "graph.yaml").write_text(GRAPH.replace("VERSION", version))
        (agent / "one.sh").write_text(f"echo once >> {self.home}/world\necho '{{}}'\n")

    def kept(self) -> bool:
        """Whether it is on disk of the newest run that its second node was left."""
        journals = self.home / "state" / "callboard" / "journal"
        runs = stored_runs(journals)
        past = read_run(journals, runs[-1].run) if runs else None
        rows = [] if past is None else [decode(row.data) for row in past.rows]
        return sum(isinstance(row, MessageRow) and isinstance(row.message, NodeDone) for row in rows) == 2

    def start(self, *words: str) -> subprocess.Popen[str]:
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
        program = [*CALLBOARD, *words]
        return subprocess.Popen(program, env=self._environ, text=True, cwd=self.home, **pipes)

    async def say(self, *words: str) -> tuple[int, str, str]:
        program = self.start(*words)
        out, err = await trio.to_thread.run_sync(program.communicate)
        return program.returncode, out, err

    async def killed(self, *words: str) -> None:
        """A run that is killed while its second model thinks."""
        held = trio.Event()
        begun = len(self.models.requests)
        self.models.script("two", Reply(text="never", hold=held))
        program = self.start("run", "--config-dir", str(self.config), "g", "hello", "--durable", *words)
        await until(lambda: len(self.models.requests) == begun + 2 and self.kept())
        program.send_signal(signal.SIGKILL)
        await trio.to_thread.run_sync(program.communicate)
        held.set()


@pytest.fixture
def resume_terminal(tmp_path: Path, fake_model: FakeModels) -> ResumeTerminal:
    fake_model.answer_with(lambda request: f"answer to {request.prompt}")
    return ResumeTerminal(tmp_path, fake_model)


async def test_a_run_whose_process_was_killed_is_listed_and_goes_on(resume_terminal: ResumeTerminal) -> None:
    await resume_terminal.killed()
    code, out, _ = await resume_terminal.say("runs", "--interrupted", "-o", "json")
    (run,) = json.loads(out)["runs"]
    assert (code, run["about"]["target"], run["about"]["prompt"], run["life"]) == (0, "g", "hello", 1)
    _, out, _ = await resume_terminal.say("runs", "--interrupted")
    assert run["run"] in out
    code, out, err = await resume_terminal.say("resume", run["run"].removeprefix("run-")[:5])
    assert (code, out) == (0, "two answer to THREE two first\n")
    assert has_message(err, "cli.actions.durable._resume.drive")
    assert (resume_terminal.home / "world").read_text() == "once\n"
    assert [request.prompt.split()[0] for request in resume_terminal.models.requests] == ["TWO", "THREE", "THREE"]
    assert has_message((await resume_terminal.say("runs", "--interrupted"))[1], "cli.actions.durable.list_interrupted")
    code, _, err = await resume_terminal.say("resume", run["run"])
    assert code == 2
    assert has_message(err, "cli.actions.durable._id_of.2")


async def test_it_goes_on_with_the_file_that_it_began_with_unless_told_otherwise(
    resume_terminal: ResumeTerminal,
) -> None:
    for words, version in (((), "first"), (("--with-changes",), "second")):
        resume_terminal.write("first")
        await resume_terminal.killed()
        resume_terminal.write("second")
        code, out, _ = await resume_terminal.say("resume", *words)
        assert (code, out) == (0, f"two answer to THREE two {version}\n")


async def test_of_several_one_has_to_be_named_or_all_go_on(resume_terminal: ResumeTerminal) -> None:
    await resume_terminal.killed()
    await resume_terminal.killed()
    code, _, err = await resume_terminal.say("resume")
    assert (code, has_message(err, "cli.actions.durable._chosen.3", there="…2")) == (2, True)
    code, out, _ = await resume_terminal.say("resume", "--all", "-o", "json")
    assert code == 0
    assert out.count('"status":"done"') + out.count('"status": "done"') == 2


async def test_a_run_that_is_ended_by_ctrl_c_is_over_for_this_process_and_may_go_on(
    resume_terminal: ResumeTerminal,
) -> None:
    held = trio.Event()
    resume_terminal.models.script("two", Reply(text="never", hold=held))
    program = resume_terminal.start("run", "--config-dir", str(resume_terminal.config), "g", "hello", "--durable")
    await until(lambda: len(resume_terminal.models.requests) == 2 and resume_terminal.kept())
    program.send_signal(signal.SIGINT)
    await trio.to_thread.run_sync(program.communicate)
    held.set()
    assert program.returncode == 130
    code, out, _ = await resume_terminal.say("resume")
    assert (code, out) == (0, "two answer to THREE two first\n")


async def test_nothing_is_kept_of_a_run_that_is_ephemeral_nor_of_a_question_without_a_session(
    resume_terminal: ResumeTerminal,
) -> None:
    resume_terminal.models.script("two", "three", "four")
    assert (await resume_terminal.say("run", "--config-dir", str(resume_terminal.config), "g", "hello", "--ephemeral"))[
        0
    ] == 0
    assert (
        await resume_terminal.say("ask", "--config-dir", str(resume_terminal.config), "--model", "fake:model", "hello")
    )[0] == 0
    assert not (resume_terminal.home / "state" / "callboard" / "journal").exists()
    code, _, err = await resume_terminal.say("resume")
    assert (code, has_message(err, "cli.actions.durable._chosen.2")) == (2, True)


@pytest.mark.parametrize("content", [b"", b"SQLite format 3\0 and nothing else", bytes(8192)])
def test_a_journal_that_can_not_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], content: bytes
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    file = tmp_path / "callboard" / "journal" / "1-dead.db"
    file.parent.mkdir(parents=True)
    file.write_bytes(content)
    for words in (["resume", "run-a"], ["resume"], ["fork", "run-a", "--at", "1"]):
        code = main.run(words)
        shown = capsys.readouterr()
        assert (code, shown.out) == (1, ""), words
        assert str(file) in shown.err
