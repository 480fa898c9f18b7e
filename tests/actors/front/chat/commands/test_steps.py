"""`.steps`, `.from`: what the last run has done, and another run from one of its steps."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.chat_person import Scripted
from support.control_hub import hub_of
from support.fake_models import FakeModels, Reply
from support.messages import says

import callboard
from callboard.actors.front.chat.chat import Chat
from callboard.actors.front.chat.execution import execute_line
from callboard.protocol.errors import Conflict, NotFound, UsageError

GRAPH = """
name: writer
start: plan
nodes:
  plan: {type: llm, prompt: "PLAN {{initial_prompt}}", state_updates: {plan: "{{output}}"}, next: write}
  write: {type: script, script: write.sh, next: end}
  end: {type: end, output: "{{plan}}"}
"""


@pytest.fixture
async def chat(root: callboard.Root, tmp_path: Path, fake_model: FakeModels, person: Scripted) -> AsyncIterator[Chat]:
    """With an answer of a graph."""
    home = Path(root.config_dir) / "agents" / "writer"
    home.mkdir(parents=True)
    (home / "graph.yaml").write_text(GRAPH)
    (home / "write.sh").write_text(f"echo x >> {tmp_path}/world; echo '{{}}'\n")
    fake_model.answer_with(lambda request: Reply(text=f"<{request.prompt}>"))
    async with hub_of(root, tmp_path / "hub", durable=True, by="chat") as hub:
        chat = Chat(hub, "local")
        await execute_line(chat, ".agent writer", person)
        await execute_line(chat, "dogs", person)
        yield chat


async def test_steps_of_the_last_run_are_listed_by_number(chat: Chat, person: Scripted) -> None:
    await execute_line(chat, ".steps", person)
    lines = person.told[-2].text.splitlines()
    assert lines[0].split() == ["STEP", "WHERE", "WHAT"]
    assert [line.split()[0] for line in lines[1:]] == [str(number) for number in range(1, len(lines))]
    assert any("plan#1" in line and "<PLAN dogs>" in line for line in lines)


async def test_another_run_goes_on_from_a_step_with_other_words_once_that_is_allowed(
    chat: Chat, person: Scripted
) -> None:
    before = chat.last_run
    person.answers = ["no", "yes"]
    assert (await execute_line(chat, ".from plan#1 cats", person)).run is None
    assert "write.sh" in person.told[-1].text
    done = await execute_line(chat, ".from plan#1 cats", person)
    assert done.run not in (None, before)
    assert (done.status, chat.hub.get(person.caller, done.run or "").output) == ("done", "<PLAN cats>")
    assert len(person.asked) == 2


async def test_what_is_no_step_or_no_run_is_told(chat: Chat, person: Scripted) -> None:
    with pytest.raises(NotFound, match=says("runs.rerun.fork.cut.2", word="nowhere")):
        await execute_line(chat, ".from nowhere", person)
    with pytest.raises(NotFound):
        await execute_line(chat, ".steps run-none", person)
    with pytest.raises(UsageError):
        await execute_line(chat, ".from", person)
    with pytest.raises(Conflict, match=says("front.chat.commands.runs._run")):
        await execute_line(Chat(chat.hub, "local"), ".steps", person)
