"""What goes on with a session beside its words: its todo list, its name, its own wishes; and what can't be kept."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import msgspec
import pytest
from support.agent_runs import AgentRunner
from support.fake_models import Reply, Request
from support.messages import has_message

from callboard.actors.runs.begin import perform
from callboard.actors.runs.session_run import RoundedOff, round_off, say, turn_in_session
from callboard.actors.runs.sessions import files
from callboard.protocol.errors import NotFound, NotKept
from callboard.protocol.requests import RunRequest
from callboard.protocol.session import read_session

TODO = "auto_continue: true\nmax_auto_continues: 1"


def begins(*tasks: str) -> Reply:
    """A model that makes a todo list."""
    return Reply(
        calls=[("todo__init", {"goal": "a bridge"}), *(("todo__add", {"task": task}) for task in tasks)],
    )


async def path_of(agent_runner: AgentRunner, name: str, agent: str | None = None) -> Path:
    """Where a session's file is."""
    return agent_runner.root.sessions.store.path(
        (await agent_runner.root.sessions.get(None, name, agent=agent)).id, agent
    )


async def test_the_todo_list_of_an_agent_goes_on_with_its_session(agent_runner: AgentRunner) -> None:
    agent_runner.plain(TODO, name="clerk")
    speak = partial(say, agent_runner.root, None, "work", agent="clerk")
    agent_runner.models.script(begins("piers", "deck"), "begun", "later")
    await speak(RunRequest(target="clerk", prompt="build"))
    stored = await agent_runner.root.sessions.get(None, "work", agent="clerk")
    assert stored.session.todo is not None
    assert [(item.desc, item.done) for item in stored.session.todo.items] == [("piers", False), ("deck", False)]
    agent_runner.models.script(Reply(calls=[("todo__done", {"id": 1}), ("todo__done", {"id": 2})]), "all done")
    assert (await speak(RunRequest(target="clerk", prompt="go on"))).output == "all done"
    stored = await agent_runner.root.sessions.get(None, "work", agent="clerk")
    assert stored.session.todo is not None
    assert all(item.done for item in stored.session.todo.items)
    assert "✓ 2. deck" in await agent_runner.root.sessions.export(None, "work", agent="clerk")
    await agent_runner.root.sessions.empty(None, "work", agent="clerk")
    assert "todo" not in (await path_of(agent_runner, "work", "clerk")).read_text()


async def test_an_open_todo_list_stands_behind_the_summary_word_for_word(agent_runner: AgentRunner) -> None:
    agent_runner.plain(TODO, name="clerk")
    agent_runner.models.script(begins("piers", "deck"), "begun", "later")
    await say(agent_runner.root, None, "work", RunRequest(target="clerk", prompt="build"), agent="clerk")
    agent_runner.models.script("a summary")
    assert await agent_runner.root.sessions.compress(None, "work", agent="clerk")
    stored = await agent_runner.root.sessions.get(None, "work", agent="clerk")
    (summary,) = stored.session.messages
    assert summary["content"].endswith(
        "a summary\n\n[ACTIVE TODO LIST]\nGoal: a bridge\nProgress: 0/2 completed\n  ○ 1. piers\n  ○ 2. deck"
    )


async def test_a_todo_list_of_any_shape_in_the_file_is_read_or_refused(agent_runner: AgentRunner) -> None:
    await say(agent_runner.root, None, "x", RunRequest(prompt="hi"))
    path = await path_of(agent_runner, "x")
    text = path.read_text()
    path.write_text("todo: {goal: g, items: [{id: 7, desc: d}]}\n" + text)
    assert "○ 7. d" in await agent_runner.root.sessions.export(None, "x")
    assert read_session(path.read_text(), "f").other == {}


async def test_a_session_without_a_name_gets_one_from_a_model_where_it_is_kept_for_good(
    agent_runner: AgentRunner,
) -> None:
    sessions = agent_runner.root.sessions
    made = await sessions.create(None)
    path = await path_of(agent_runner, made.id)
    path.write_text("save_session: true\n" + path.read_text())
    agent_runner.models.script("Arches.", "What holds arches up?")
    async with turn_in_session(agent_runner.root, None, made.id, RunRequest(prompt="tell me")) as act:
        await perform(act.request, act.hooks, agent_runner.root)
        done = await round_off(agent_runner.root, act)
    assert done.autonamed is not None
    assert re.fullmatch(r"\d{8}T\d{6}-what-holds-arches-up", done.autonamed)
    (listed,) = await sessions.list(None)
    assert (listed.id, listed.alias, listed.title, listed.is_autoname) == (
        made.id,
        done.autonamed,
        "What holds arches up?",
        True,
    )
    async with turn_in_session(agent_runner.root, None, made.id, RunRequest(prompt="more")) as act:
        await perform(act.request, act.hooks, agent_runner.root)
        assert await round_off(agent_runner.root, act) == RoundedOff()
    other = await sessions.create(None)  # nobody has said that it is to be kept for good
    async with turn_in_session(agent_runner.root, None, other.id, RunRequest(prompt="hi")) as act:
        await perform(act.request, act.hooks, agent_runner.root)
        assert await round_off(agent_runner.root, act) == RoundedOff()
    assert (await sessions.get(None, other.id)).alias is None


async def test_a_session_of_no_agent_says_itself_what_may_be_called_and_whether_it_goes_on(
    agent_runner: AgentRunner,
) -> None:
    await say(agent_runner.root, None, "x", RunRequest(prompt="hi"))
    path = await path_of(agent_runner, "x")
    path.write_text(
        "enabled_tools: get_current_time\nauto_continue: true\nmax_auto_continues: 1\ntemperature: 0.25\n"
        "continuation_prompt: Onward.\n" + path.read_text()
    )
    agent_runner.models.script(begins("piers"), "begun", "later")
    await say(agent_runner.root, None, "x", RunRequest(prompt="build"))
    asked = agent_runner.models.requests[-1].json
    assert asked["temperature"] == 0.25
    assert {"get_current_time", "todo__add"} <= {tool["function"]["name"] for tool in asked["tools"]}
    assert asked["messages"][-1]["content"].startswith("Onward.")


async def test_an_answer_that_can_not_be_kept_is_given_all_the_same(
    agent_runner: AgentRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    await say(agent_runner.root, None, "x", RunRequest(prompt="one"))

    def full(_fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.atomic_write.os, "fsync", full)
    outcome = await say(agent_runner.root, None, "x", RunRequest(prompt="two"))
    assert (outcome.status, outcome.output, outcome.exit_code) == ("done", "ok", 1)
    assert outcome.save_error is not None
    assert re.fullmatch(
        r"the answer could not be saved in session 'x': sessions can't be saved: .*: No space left on device; "
        "free some space there",
        outcome.save_error,
    )
    with pytest.raises(NotKept):
        async with agent_runner.root.sessions.turn(None, "x") as turn:
            turn.touch()
    monkeypatch.undo()
    outcome = await say(agent_runner.root, None, "x", RunRequest(prompt="three"))
    assert outcome.save_error is None
    asked = [message["content"] for message in agent_runner.models.requests[-1].json["messages"]]
    assert asked == ["one", "ok", "three"]


async def test_an_error_of_the_work_is_told_and_not_that_it_could_not_be_kept(agent_runner: AgentRunner) -> None:
    made = await agent_runner.root.sessions.create(None)
    path = await path_of(agent_runner, made.id)
    told: list[BaseException] = []
    try:
        async with agent_runner.root.sessions.turn(None, made.id) as turn:
            turn.touch()
            path.unlink()
            raise ZeroDivisionError
    except ZeroDivisionError as error:
        told.append(error)
    assert told
    assert isinstance(turn.unkept, NotFound)


async def test_a_session_deleted_during_its_turn_stays_deleted(agent_runner: AgentRunner) -> None:
    await say(agent_runner.root, None, "x", RunRequest(prompt="one"))
    path = await path_of(agent_runner, "x")

    def vanish(_: Request) -> str:
        agent_runner.root.sessions.store.delete(path.parent.name)
        return "ok"

    agent_runner.models.answer_with(vanish)
    outcome = await say(agent_runner.root, None, "x", RunRequest(prompt="two"))
    assert outcome.output == "ok"
    assert has_message(outcome.save_error or "", "runs.sessions.store.SessionStore.save")
    assert await agent_runner.root.sessions.list(None) == []


async def test_all_that_a_turn_has_said_is_put_behind_what_somebody_has_written_past_the_lock(
    agent_runner: AgentRunner,
) -> None:
    await say(agent_runner.root, None, "x", RunRequest(prompt="one"))
    path = await path_of(agent_runner, "x")
    async with turn_in_session(agent_runner.root, None, "x", RunRequest()) as act:
        for prompt in ("two", "three"):
            request = msgspec.structs.replace(act.request, prompt=prompt, history=act.turn.history)
            await perform(request, act.hooks, agent_runner.root)
        path.write_text("temperature: 0.25\n" + path.read_text())
    kept = read_session(path.read_text(), "f")
    assert kept.temperature == 0.25
    assert [message["content"] for message in kept.messages] == ["one", "ok", "two", "ok", "three", "ok"]


async def test_what_is_said_while_an_editor_leaves_half_a_file_is_put_beside_it(agent_runner: AgentRunner) -> None:
    await say(agent_runner.root, None, "x", RunRequest(prompt="one"))
    path = await path_of(agent_runner, "x")

    def tear(_: Request) -> str:
        path.write_text("messages: [")
        return "precious"

    agent_runner.models.answer_with(tear)
    outcome = await say(agent_runner.root, None, "x", RunRequest(prompt="two"))
    assert outcome.output == "precious"
    (beside,) = path.parent.glob("state-*.yaml")
    assert str(beside) in (outcome.save_error or "")
    assert [message["content"] for message in read_session(beside.read_text(), "f").messages] == [
        "one",
        "ok",
        "two",
        "precious",
    ]
