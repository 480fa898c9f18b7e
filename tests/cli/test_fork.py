"""`callboard fork` and `callboard runs show --rows`: as a user has them, in processes of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import trio
from support.fake_models import FakeModels, Reply
from support.messages import has_message
from support.screen import Screen
from support.starter import CALLBOARD

GRAPH = """
name: g
start: one
initial_state: {topic: dogs}
nodes:
  one: {type: script, script: one.sh, next: two}
  two: {type: llm, prompt: "ABOUT {{topic}}", state_updates: {two: "{{output}}"}, next: ask}
  ask: {type: approval, question: "Publish?", options: ["yes", "no"], routes: {"yes": out, "no": out}, on_other: out}
  out: {type: script, script: out.sh, next: done}
  done: {type: end, output: "{{two}} VERSION"}
"""


class ForkTerminal:
    """Where runs are played and forked at a terminal."""

    def __init__(self, home: Path, models: FakeModels) -> None:
        self.home = home
        self.models = models
        self.config = models.config_dir(home / "config")
        self.write("first")
        self.environ = {**os.environ, "XDG_STATE_HOME": str(home / "state")}
        self.environ.pop("CALLBOARD_CONFIG_DIR", None)

    def write(self, version: str) -> None:
        agent = self.config / "agents" / "g"
        agent.mkdir(parents=True, exist_ok=True)
        (agent / "graph.yaml").write_text(GRAPH.replace("VERSION", version))
        for name in ("one", "out"):
            (agent / f"{name}.sh").write_text(f"echo {name} >> {self.home}/world\necho '{{}}'\n")

    @property
    def world(self) -> list[str]:
        return (self.home / "world").read_text().split()

    async def say(self, *words: str, cwd: Path | None = None) -> tuple[int, str, str]:
        program = self.start(words, subprocess.DEVNULL, subprocess.PIPE, cwd)
        out, err = await trio.to_thread.run_sync(program.communicate)
        return program.returncode, out, err

    def start(self, words: Sequence[str], stdin: int, stderr: int, cwd: Path | None = None) -> subprocess.Popen[str]:
        program = [*CALLBOARD, *words]
        where: dict[str, Any] = {"env": self.environ, "cwd": cwd or self.home, "stdin": stdin, "stderr": stderr}
        return subprocess.Popen(program, text=True, stdout=subprocess.PIPE, **where)

    async def run(self) -> str:
        """The id of a durable run that is done."""
        words = ("run", "--config-dir", str(self.config), "g", "hello", "--durable", "--answer", "yes", "-o", "json")
        code, out, err = await self.say(*words)
        assert code == 0, err
        return str(json.loads(out)["run_id"])


@pytest.fixture
def fork_terminal(tmp_path: Path, fake_model: FakeModels) -> ForkTerminal:
    fake_model.answer_with(lambda request: f"answer to {request.prompt}")
    return ForkTerminal(tmp_path, fake_model)


async def test_rows_are_listed_and_a_fork_begins_at_one_of_them(fork_terminal: ForkTerminal) -> None:
    run = await fork_terminal.run()
    code, out, _ = await fork_terminal.say("runs", "show", run.removeprefix("run-"), "--rows")
    lines = out.splitlines()
    assert (code, lines[0].split()[:4]) == (0, ["STEP", "SECONDS", "WHERE", "WHAT"])
    assert "begun" in lines[1]
    reply = next(line for line in lines if "answer to ABOUT dogs" in line)
    assert reply.split()[2:4] == ["two#1", "reply"]
    code, out, _ = await fork_terminal.say("runs", "show", run, "--rows", "-o", "json")
    rows = json.loads(out)["rows"]
    assert [row["row"] for row in rows] == list(range(1, len(lines)))
    question = next(row["question"] for row in rows if row["what"] == "question")
    assert question == f"q-{run.removeprefix('run-')}-1"

    code, out, err = await fork_terminal.say(
        "fork", run, "--at", "two#1", "--set", 'topic="cats"', "--answer", "x=y", "--yes"
    )
    assert (code, has_message(err, "runs.rerun.fork._answers", word="x")) == (2, True)
    code, out, err = await fork_terminal.say(
        "fork", run, "--at", "two#1", "--set", 'topic="cats"', "--yes", "-o", "json"
    )
    assert (code, json.loads(out)["output"]) == (0, "answer to ABOUT cats first")
    assert f"a fork of {run}" in err
    code, out, _ = await fork_terminal.say("fork", run, "--at", question, "--answer", f"{question}=no", "--yes")
    assert (code, out) == (0, "answer to ABOUT dogs first\n")
    assert fork_terminal.world == ["one", "out", "out", "out"]
    assert [request.prompt for request in fork_terminal.models.requests] == ["ABOUT dogs", "ABOUT cats"]


async def test_what_would_be_done_again_is_asked_about_and_without_a_person_needs_a_word(
    fork_terminal: ForkTerminal,
) -> None:
    run = await fork_terminal.run()
    code, _, err = await fork_terminal.say("fork", run, "--at", "two")
    assert code == 5
    assert has_message(err, "cli.actions.durable._agreed", again="1 change")
    assert "--yes" in err
    assert (await fork_terminal.say("fork", run, "--at", "99", "--yes"))[0] == 2
    assert fork_terminal.world == ["one", "out"]


@pytest.mark.parametrize(("key", "world"), [("y", ["one", "out", "out"]), ("n", ["one", "out"])])
async def test_at_a_terminal_it_is_asked_what_may_be_done_again(
    fork_terminal: ForkTerminal, key: str, world: list[str]
) -> None:
    run = await fork_terminal.run()
    screen = Screen()
    program = fork_terminal.start(("fork", run, "--at", "out"), screen.slave, screen.slave)
    await screen.shows("(?s)repeats.*out#1: the script 'out.sh'.*arrows or a number")
    os.write(screen.master, f"{key}\r".encode())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(screen.shows, "never")  # a terminal that nobody reads holds a program up
        out, _ = await trio.to_thread.run_sync(program.communicate)
        nursery.cancel_scope.cancel()
    screen.close()
    assert fork_terminal.world == world
    assert (program.returncode, out) == ((0, "answer to ABOUT dogs first\n") if key == "y" else (1, ""))


async def test_an_interrupted_fork_says_how_it_continues(fork_terminal: ForkTerminal) -> None:
    run = await fork_terminal.run()
    fork_terminal.models.script(Reply(hold=trio.Event()))
    program = fork_terminal.start(("fork", run, "--at", "two#1", "--yes"), subprocess.DEVNULL, subprocess.PIPE)
    await fork_terminal.models.arrived(2)
    program.send_signal(signal.SIGINT)
    _, err = await trio.to_thread.run_sync(program.communicate)
    assert program.returncode == 130
    forked = err.splitlines()[-1].removeprefix("callboard: to continue this run: callboard resume ")
    assert forked.startswith("run-")
    assert forked != run
    code, out, err = await fork_terminal.say("resume", forked)
    assert (code, out) == (0, "answer to ABOUT dogs first\n"), err


async def test_the_file_of_today_is_played_if_that_is_wanted(fork_terminal: ForkTerminal) -> None:
    run = await fork_terminal.run()
    fork_terminal.write("second")
    for words, version in (((), "first"), (("--with-changes",), "second")):
        code, out, _ = await fork_terminal.say("fork", run, "--at", "ask", "--answer", "ask=no", "--yes", *words)
        assert (code, out) == (2, "")  # the question is not asked yet there
        code, out, _ = await fork_terminal.say("fork", run, "--at", "out#1", "--yes", *words)
        assert (code, out) == (0, f"answer to ABOUT dogs {version}\n")


async def test_a_relative_configuration_directory_is_that_of_the_shell_not_of_the_run(
    fork_terminal: ForkTerminal,
) -> None:
    run = await fork_terminal.run()
    other = fork_terminal.home / "shell" / "conf"
    other.mkdir(parents=True)
    (other / "config.yaml").write_text("clients: 5\n")
    code, _, err = await fork_terminal.say("fork", run, "--at", "out#1", "--yes", "-C", "conf", cwd=other.parent)
    assert (code, str(other / "config.yaml") in err) == (3, True), err


async def test_a_run_is_replayed_without_its_model_and_without_doing_anything(fork_terminal: ForkTerminal) -> None:
    words = (
        "run",
        "--config-dir",
        str(fork_terminal.config),
        "g",
        "hello",
        "--durable",
        "--answer",
        "yes",
        "-o",
        "json",
    )
    _, ran, _ = await fork_terminal.say(*words)
    run, world, requests = json.loads(ran)["run_id"], fork_terminal.world, len(fork_terminal.models.requests)
    code, out, err = await fork_terminal.say("replay", run)
    assert (code, out, err) == (0, "answer to ABOUT dogs first\n", "")
    code, out, _ = await fork_terminal.say("replay", run.removeprefix("run-"), "-o", "json")
    assert (code, out) == (0, ran)
    (code, events, _), (_, again, _) = (
        await fork_terminal.say("replay", run, "-o", "events"),
        await fork_terminal.say("replay", run, "-o", "events"),
    )
    assert code == 0
    assert events == again
    lines = [json.loads(line) for line in events.splitlines()]
    assert (lines[0]["kind"], lines[-1]["kind"], lines[0]["run"]) == ("run.started", "run.finished", run)
    assert (fork_terminal.world, len(fork_terminal.models.requests)) == (world, requests)
    file = fork_terminal.config / "agents" / "g" / "graph.yaml"
    file.write_text(file.read_text().replace("Publish?", "Go?"))
    code, out, err = await fork_terminal.say("replay", run, "--with-changes")
    assert (code, out) == (1, "answer to ABOUT dogs first\n")
    assert "(ask#1): it asked 'Publish?', and asks 'Go?' now" in err


async def test_a_run_that_is_not_there_is_named(fork_terminal: ForkTerminal) -> None:
    for words in (("fork", "run-x", "--at", "1"), ("runs", "show", "run-x", "--rows"), ("replay", "run-x")):
        code, _, err = await fork_terminal.say(*words)
        assert (code, has_message(err, "cli.actions.durable.find_durable_run", word="run-x")) == (2, True)


async def test_a_run_is_recorded_and_played_by_its_cassette(fork_terminal: ForkTerminal) -> None:
    words = ("run", "--config-dir", str(fork_terminal.config), "g", "hello", "--answer", "yes")
    code, out, _ = await fork_terminal.say(*words, "--record", "tapes/one.jsonl")
    assert (code, out) == (0, "answer to ABOUT dogs first\n")
    requests, world = len(fork_terminal.models.requests), fork_terminal.world
    (fork_terminal.config / "config.yaml").unlink()
    played = ("run", "--config-dir", str(fork_terminal.config), "g", "--replay", "tapes/one.jsonl")
    code, out, err = await fork_terminal.say(*played)
    assert (code, out) == (0, "answer to ABOUT dogs first\n"), err
    assert (len(fork_terminal.models.requests), fork_terminal.world) == (requests, world)
    file = fork_terminal.config / "agents" / "g" / "graph.yaml"
    file.write_text(file.read_text().replace("ABOUT", "OF"))
    code, out, err = await fork_terminal.say(*played)
    assert (code, out) == (1, "")
    assert "-  ABOUT dogs" in err
    assert "+  OF dogs" in err
    assert (await fork_terminal.say(*played, "--loose"))[0] == 0
    assert (await fork_terminal.say(*played, "--record", "x"))[0] == 2
    assert (await fork_terminal.say(*played, "--durable"))[0] == 2
    code, _, err = await fork_terminal.say(
        "run", "--config-dir", str(fork_terminal.config), "g", "x", "--replay", str(file)
    )
    assert (code, f"{file}:2:1: error: this is not a line of a cassette" in err) == (2, True)


async def test_what_is_asked_without_an_agent_is_recorded_as_well(fork_terminal: ForkTerminal) -> None:
    words = ("ask", "--config-dir", str(fork_terminal.config), "--tool", "get_current_time")
    code, out, _ = await fork_terminal.say(*words, "hello", "--record", "ask.jsonl")
    assert (code, out) == (0, "answer to hello\n")
    (fork_terminal.config / "config.yaml").unlink()
    code, out, err = await fork_terminal.say(*words, "--replay", "ask.jsonl")
    assert (code, out) == (0, "answer to hello\n"), err
