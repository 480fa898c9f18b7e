"""A turn of a session whose process is killed goes on in its session, whose file gets it once."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
import trio
from support.fake_models import FakeModels, Reply, Request
from support.messages import has_message
from support.starter import forked

from callboard.actors.runs.sessions.store import SessionStore
from callboard.protocol.session import Session
from callboard.supervisors.journal.reading import stored_runs
from callboard.supervisors.journal.row import State

TURNING = Path(__file__).with_name("turning.py")

AGENT = """
name: clerk
instructions: CLERK
global_tools: [execute_command]
auto_continue: true
"""
GRAPH = """
name: g
start: one
nodes:
  one: {type: llm, prompt: "ONE {{initial_prompt}}", state_updates: {one: "{{output}}"}, next: two}
  two: {type: llm, prompt: "TWO {{one}}", state_updates: {two: "{{output}}"}, next: done}
  done: {type: end, output: "{{two}}"}
"""


def say(request: Request) -> Reply:
    """What the model says depends on the request alone."""
    prompt, results = request.prompt, len(request.results)
    if "CLERK" in request.system and prompt == "work" and not results:
        return Reply(calls=[("execute_command", {"command": "true"})])
    return Reply(text=f"<{prompt}>")


class KilledTurns:
    """Where turns are played by programs that are killed."""

    def __init__(self, home: Path, models: FakeModels) -> None:
        self._home = home
        self._config = models.config_dir(home / "config")
        for name, file, text in (("clerk", "config.yaml", AGENT), ("g", "graph.yaml", GRAPH)):
            (self._config / "agents" / name).mkdir(parents=True)
            (self._config / "agents" / name / file).write_text(text)
        models.answer_with(say)

    async def play(self, **order: Any) -> dict[str, Any] | None:
        """What a program said at its end; None if it was killed."""
        told = {"config": str(self._config), "target": "", "prompt": "hello", **order}
        program = await trio.run_process(
            [*forked(TURNING), json.dumps(told)],
            env={**os.environ, "XDG_STATE_HOME": str(self._home / "state")},
            capture_stdout=True,
            check=False,
        )
        if program.returncode == -9:
            return None
        assert program.returncode == 0, program.returncode
        said: dict[str, Any] = json.loads(program.stdout)
        return said

    def session(self, agent: str | None) -> Session:
        store = SessionStore(self._config)
        id = store.resolve_alias("bridges", agent)
        assert id is not None
        return store.open(id, agent).session

    def said(self, agent: str | None) -> list[tuple[str, str]]:
        """The texts of the session, and who has said each."""
        told = []
        for message in self.session(agent).messages:
            content = message["content"]
            told.append((message["role"], content if isinstance(content, str) else json.dumps(content)))
        return told

    @property
    def interrupted(self) -> list[str]:
        return [kept.run for kept in stored_runs(self._home / "state" / "callboard" / "journal", State.INTERRUPTED)]


@pytest.fixture
def killed_turns(tmp_path: Path, fake_model: FakeModels) -> KilledTurns:
    return KilledTurns(tmp_path, fake_model)


ROWS = {"": 4, "clerk": 7, "g": 6}
PROMPTS = {"": "hello", "clerk": "work", "g": "hello"}
ANSWERS = {"": "<hello>", "clerk": "<work>", "g": "<TWO <ONE hello>>"}


def cases() -> list[Any]:
    chance, found = random.Random("turns"), []
    for target, rows in ROWS.items():
        often = chance.randrange(1, rows + 1)
        found += [
            pytest.param(target, row, marks=() if row == often else pytest.mark.soak) for row in range(1, rows + 1)
        ]
        marks = pytest.mark.soak if target else ()
        found.append(pytest.param(target, "written", id=f"{target}-written", marks=marks))
    return found


@pytest.mark.parametrize(("target", "kill"), cases())
@pytest.mark.sample(2)
async def test_killed_at_any_row_or_once_the_file_is_written_a_turn_goes_on_and_is_there_once(
    killed_turns: KilledTurns, target: str, kill: int | str
) -> None:
    agent, prompt = target or None, PROMPTS[target]
    assert (await killed_turns.play(target=target, prompt="first")) is not None
    before = killed_turns.said(agent)
    assert await killed_turns.play(target=target, prompt=prompt, kill=kill) is None
    assert len(killed_turns.interrupted) == 1
    outcome = await killed_turns.play(resume=True)
    assert outcome is not None
    assert outcome.get("error") is None
    assert outcome["output"] == ANSWERS[target]
    said = killed_turns.said(agent)
    assert said[: len(before)] == before
    assert [text for role, text in said if role == "user"][-1] == prompt
    assert said[-1] == ("assistant", ANSWERS[target])
    assert sum(text == prompt for _, text in said) == 1
    assert killed_turns.interrupted == []
    assert await killed_turns.play(target=target, prompt="third") is not None
    assert killed_turns.said(agent)[-2] == ("user", "third")


async def test_a_session_that_others_have_gone_on_with_gets_the_turn_behind_theirs(killed_turns: KilledTurns) -> None:
    assert await killed_turns.play(target="clerk", prompt="first") is not None
    assert await killed_turns.play(target="clerk", prompt="work", kill=4) is None
    assert await killed_turns.play(target="clerk", prompt="between") is not None
    assert (await killed_turns.play(resume=True) or {})["output"] == "<work>"
    asked = [text for role, text in killed_turns.said("clerk") if role == "user"]
    assert asked == ["first", "between", "work"]
    assert killed_turns.session("clerk").compressed_messages == []


async def test_a_turn_of_a_session_that_was_deleted_says_so_and_stays(killed_turns: KilledTurns) -> None:
    assert await killed_turns.play(prompt="hello", kill=2) is None
    store = SessionStore(killed_turns._config)
    id = store.resolve_alias("bridges", None)
    assert id is not None
    store.delete(id)
    assert has_message((await killed_turns.play(resume=True) or {})["error"], "runs.durable.resumed_turn")
    assert len(killed_turns.interrupted) == 1
