"""Forks: another run begins with the first rows of one, and does behind them what that run would have done."""

from __future__ import annotations

import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from support.fake_models import FakeModels, Reply, Request

import callboard
from callboard.actors.engine.driver import fold
from callboard.actors.runs.rerun.fork import cut, nodes_of, read_fork
from callboard.actors.runs.rerun.run_steps import steps
from callboard.actors.work.journal.actor_journal import JournalPlayer
from callboard.actors.work.journal.fork_prefix import Placed, began, done_again, prefix
from callboard.actors.work.journal.run_journal import REPLY, past_of
from callboard.protocol.errors import NotFound, UsageError
from callboard.protocol.journal import (
    Answered,
    AnyRow,
    Asked,
    Intends,
    MessageRow,
    Noted,
    decode_about,
    encode,
    encode_about,
)
from callboard.protocol.messages import NodeDone, Replied, Summarized, ToolDone
from callboard.supervisors.journal.row import StoredRow

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "durable"))

from everything import EFFECTS
from in_process import InProcessRun, Person, state_of, tapes
from support.messages import has_message, says
from support.second_decider import _Rows
from test_kills import REQUESTS, ROWS


@pytest.fixture
def in_process_run(tmp_path: Path, fake_model: FakeModels, monkeypatch: pytest.MonkeyPatch) -> InProcessRun:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOST", "0")
    return InProcessRun(tmp_path, fake_model)


def past(rows: list[Placed]) -> Any:
    return past_of([StoredRow(number, path, encode(row)) for number, (path, row) in enumerate(rows, 1)])


def some(name: str, of: list[Any], few: int) -> list[Any]:
    """Some of them, with a fixed seed; the others are for `make soak`."""
    chosen = random.Random(name).sample(of, few)
    return [pytest.param(each, marks=() if each in chosen else pytest.mark.soak) for each in of]


def begins(rows: list[Placed], number: int) -> bool:
    """Whether a decider began with this row."""
    row = rows[number - 1][1]
    return isinstance(row, MessageRow) and type(row.message).__name__.endswith("Begun")


async def test_at_each_row_its_deciders_are_where_those_of_the_run_were(in_process_run: InProcessRun) -> None:
    with tapes() as made:
        await in_process_run.begin()
    rows = in_process_run.read()
    of = {
        path: tape for tape in made for number in tape.states for path in [rows[number - 1][0]] if begins(rows, number)
    }
    assert len(of) == len(made)
    compared: Counter[str] = Counter()
    for at in range(1, len(rows) + 1):
        kept = past(prefix(rows, at, "run-2").rows)
        for path, tape in of.items():
            told = kept.paths.pop(path).told if path in kept.paths else []
            if not told:
                continue
            number = max(n for n in tape.states if n <= at and rows[n - 1][0] == path)
            decider = tape.afresh()
            left = fold(decider, JournalPlayer(_Rows(), path, told), tape.request)  # type: ignore[arg-type]
            if left.finish is None:
                assert state_of(decider) == tape.states[number], (at, path)
                compared[path] += 1
    assert compared.keys() == of.keys()
    assert compared[""] >= len(rows) - 3


@pytest.mark.parametrize("row", some("forks", list(range(1, ROWS + 1)), 3))
async def test_played_from_any_row_it_comes_to_the_same_end_and_does_what_came_behind_again(
    in_process_run: InProcessRun, row: int
) -> None:
    outcome = await in_process_run.begin()
    rows, requests = in_process_run.read(), in_process_run.requests
    again = [number for number in done_again(rows, row) if counted(rows[number - 1][1])]
    forked = await in_process_run.fork(row, id="run-2")
    assert (forked.run_id, forked.status, forked.output) == ("run-2", outcome.status, outcome.output)
    assert (forked.order, forked.turns) == (outcome.order, outcome.turns)
    assert sum(in_process_run.effects.values()) - len(EFFECTS) == len(again)
    replies = sum(map(is_reply, rows[:row]))
    assert in_process_run.requests - requests == REQUESTS - replies
    assert [type(row).__name__ for _, row in in_process_run.read()] == [type(row).__name__ for _, row in rows]
    began_with = began(in_process_run.read("run-2"))
    assert (began_with.forked_from, began_with.forked_at) == ("run-1", row)
    asked = [each.question.id for _, each in in_process_run.read("run-2") if isinstance(each, Asked)]
    assert asked == [f"q-2-{number}" for number in range(1, len(asked) + 1)]


def counted(row: AnyRow) -> bool:
    """Whether this is an effect that the world counts."""
    return isinstance(row, Intends) and "turn.sh" not in row.what


def is_reply(placed: Placed) -> bool:
    row = placed[1]
    return (isinstance(row, MessageRow) and isinstance(row.message, Replied)) or (
        isinstance(row, Noted) and row.name == REPLY
    )


async def test_a_place_is_a_row_a_visit_of_a_node_or_a_question(in_process_run: InProcessRun) -> None:
    await in_process_run.begin()
    rows = in_process_run.read()
    nodes = nodes_of(rows, in_process_run.config)
    at = {f"{each.node}#{each.visit}": each.row for each in nodes}
    assert list(at) == [
        *("first#1", "each#1", "tool#1", "shape#1", "name#1", "fan#1", "helper#1", "beside#1"),
        *("loop#1", "ok#1", "turn#1", "loop#2", "ok#2", "turn#2"),
    ]
    loop = at["loop#2"]
    assert {cut(rows, "loop#2", nodes), cut(rows, loop, nodes), cut(rows, str(loop), [])} == {loop}
    assert cut(rows, "first", nodes) == at["first#1"]
    left = rows[loop - 1][1]
    assert isinstance(left, MessageRow)
    assert isinstance(left.message, NodeDone)
    assert left.message.node == "turn"
    asked = rows[cut(rows, "q-1-2", nodes) - 1][1]
    assert isinstance(asked, Asked)
    assert asked.question.id == "q-1-2"
    for nowhere in (0, len(rows) + 1, "loop#3", "nowhere", "q-1-9"):
        with pytest.raises(NotFound, match=r"(there is|the run has) no row"):
            cut(rows, nowhere, nodes)


async def test_why_a_run_can_t_go_on_behind_the_place_is_not_said_of_its_fork(in_process_run: InProcessRun) -> None:
    await in_process_run.begin()
    async with callboard.Root(config_dir=in_process_run.config) as root:
        fork = await read_fork(root, "run-1", 2)
    about = msgspec.structs.replace(decode_about(fork.about), spoilt="it has a socket", left=True, rows=9)
    fork = msgspec.structs.replace(fork, about=encode_about(about))
    told = fork.about_it(past(prefix(fork.rows, 2, "run-2").rows))
    assert (told.spoilt, told.left, told.rows, told.target) == ("", False, 0, about.target)


async def test_what_is_done_again_is_told_beforehand(in_process_run: InProcessRun) -> None:
    await in_process_run.begin()
    async with callboard.Root(config_dir=in_process_run.config) as root:
        assert (await read_fork(root, "run-1", "loop#2")).again == (
            "loop#2: the script 'loop.sh'",
            "turn#2: the script 'turn.sh'",
        )
        assert (await read_fork(root, "run-1", len(in_process_run.read()))).again == ()
        inside = next(
            number
            for number, (path, row) in enumerate(in_process_run.read(), 1)
            if isinstance(row, Intends) and "/" in path
        )
        assert "each#1/item_script[0]: the script 'item.sh'" in (await read_fork(root, "run-1", inside)).again
        with pytest.raises(NotFound, match=says("runs.rerun.fork.stored_rows", run="run-9")):
            await read_fork(root, "run-9", 1)


async def test_a_run_is_forked_while_it_goes_on_in_this_process_and_stays_as_it_is(
    in_process_run: InProcessRun,
) -> None:
    async with callboard.Root(config_dir=in_process_run.config) as root:
        forked: list[callboard.Outcome] = []

        class Forker(Person):
            def asked(self, question: callboard.Question) -> None:
                if question.run == "run-1" and question.node == "ok" and not begun:
                    begun.append(question.id)
                    nursery.start_soon(self.fork, question.id)
                waits = question.run == "run-1" and question.node == "ok" and not forked
                waiting.append(question) if waits else super().asked(question)

            async def fork(self, id: str) -> None:
                forked.append(await callboard.fork("run-1", at=id, answers={id: "no"}, id="run-2", root=root))
                for question in waiting:
                    super().asked(question)

        begun: list[str] = []
        waiting: list[callboard.Question] = []
        async with trio.open_nursery() as nursery:
            with root.questions.attach(Forker(root, str(in_process_run.log))):
                outcome = await callboard.run("g", "hello", durable=True, id="run-1", yes=True)
    assert (forked[0].order[-4:], outcome.order[-4:]) == (
        ["loop", "ok", "turn", "done"],
        ["loop", "ok", "turn", "done"],
    )
    assert (forked[0].output[-1], outcome.output[-1]) == ("1", "2")


async def test_a_run_of_another_process_is_forked_while_that_goes_on_and_after_it_was_killed(
    in_process_run: InProcessRun,
) -> None:
    assert await in_process_run.play(kill=40) is None
    forked = await in_process_run.fork("name#1", id="run-2")
    assert forked.status == "done"
    assert len(in_process_run.read()) == 40
    said = await in_process_run.play(resume=True)
    assert said is not None
    assert said["output"] == forked.output


class TestChanges:
    async def test_a_state_that_is_set_is_what_nodes_begin_again_on(self, in_process_run: InProcessRun) -> None:
        await in_process_run.begin()
        forked = await in_process_run.fork("loop#2", state={"round": 7, "who": "Ann"}, id="run-2")
        assert (forked.output[-1], "Ann" in forked.output, forked.state["who"]) == ("8", True, "Ann")
        again = await self.fork_of_fork(in_process_run, len(in_process_run.read("run-2")) - 1)
        assert again.output == forked.output

    async def fork_of_fork(self, in_process_run: InProcessRun, at: int) -> callboard.Outcome:
        async with callboard.Root(config_dir=in_process_run.config) as root:
            with root.questions.attach(Person(root, str(in_process_run.log))):
                return await callboard.fork("run-2", at=at)

    async def test_what_a_node_had_found_out_on_another_state_is_found_out_anew(
        self, in_process_run: InProcessRun
    ) -> None:
        await in_process_run.begin()
        rows = in_process_run.read()
        inside = max(number for number, (path, _) in enumerate(rows, 1) if path.startswith("2/"))
        forked = await in_process_run.fork(inside - 3, state={"items": [8, 9]})
        assert '["<ITEM 8> 8","<ITEM 9> 9"]' in forked.output

    async def test_a_question_that_was_open_is_answered_by_its_id_or_its_node(
        self, in_process_run: InProcessRun
    ) -> None:
        await in_process_run.begin()
        for word in ("q-1-3", "ok"):
            asked = len(in_process_run.asked)
            forked = await in_process_run.fork("q-1-3", answers={word: "NO"})
            assert forked.output[-1] == "1"
            assert len(in_process_run.asked) == asked
        answer = next(
            row.answer
            for _, row in in_process_run.read(forked.run_id)
            if isinstance(row, Answered) and row.answer.by == "fork"
        )
        assert (answer.question, answer.value) == (f"q-{forked.run_id.removeprefix('run-')}-3", "no")
        with pytest.raises(UsageError, match=says("runs.rerun.fork._answers", word="q-1-1", there="q-1-3")):
            await in_process_run.fork("q-1-3", answers={"q-1-1": "no"})
        with pytest.raises(UsageError, match=says("runs.rerun.fork._answers.2")):
            await in_process_run.fork("q-1-3", answers={"ok": "no"}, state={"x": 1})

    async def test_other_words_take_the_place_of_the_prompt_or_are_said_from_there_on(
        self, in_process_run: InProcessRun
    ) -> None:
        await in_process_run.begin()
        forked = await in_process_run.fork(2, prompt="other words", id="run-2")
        assert forked.state["initial_prompt"] == "other words"
        assert began(in_process_run.read("run-2")).request.prompt == "other words"
        forked = await in_process_run.fork("ok#2", prompt="late words")
        assert forked.state["initial_prompt"] == "late words"

    async def test_another_model_replies_from_there_on(self, in_process_run: InProcessRun) -> None:
        await in_process_run.begin()
        forked = await in_process_run.fork("fan", model="fake:other")
        assert {name: used.input_tokens > 0 for name, used in forked.usage.items()} == {
            "fake:model": True,
            "fake:other": True,
        }


AGENT = """
name: a
instructions: AGENT
global_tools: [get_current_time]
"""


class TestAgents:
    async def begin(self, in_process_run: InProcessRun, models: FakeModels) -> None:
        (in_process_run.config / "agents" / "a").mkdir()
        (in_process_run.config / "agents" / "a" / "config.yaml").write_text(AGENT)

        def say(request: Request) -> Reply:
            if not request.results:
                return Reply(calls=[("get_current_time", {})])
            return Reply(text=f"heard {request.prompt}")

        models.answer_with(say)
        async with callboard.Root(config_dir=in_process_run.config):
            outcome = await callboard.run("a", "old words", durable=True, id="run-1")
        assert outcome.output == "heard old words"

    async def test_words_that_an_agent_had_not_answered_are_replaced_and_later_ones_are_said_to_it(
        self, in_process_run: InProcessRun, fake_model: FakeModels
    ) -> None:
        await self.begin(in_process_run, fake_model)
        forked = await in_process_run.fork(2, prompt="new words")
        assert forked.output == "heard new words"
        after_tool = next(
            number
            for number, (_, row) in enumerate(in_process_run.read(), 1)
            if isinstance(row, MessageRow) and isinstance(row.message, ToolDone)
        )
        forked = await in_process_run.fork(after_tool, prompt="more words")
        assert forked.output == "heard more words"
        asked = fake_model.requests[-1].json["messages"]
        assert [turn["content"] for turn in asked if turn["role"] == "user"] == ["old words", "more words"]
        with pytest.raises(UsageError, match=says("runs.rerun.fork._with_other_words")):
            await in_process_run.fork(after_tool, state={"x": 1})

    async def test_a_conversation_that_was_shortened_for_one_model_goes_on_with_another(
        self, in_process_run: InProcessRun, fake_model: FakeModels
    ) -> None:
        (in_process_run.config / "agents" / "a").mkdir()
        config = (
            AGENT.replace("get_current_time", "execute_command") + "compression_threshold: 400\ncan_ask_user: false\n"
        )
        (in_process_run.config / "agents" / "a" / "config.yaml").write_text(config)

        left = list(range(8))

        def say(request: Request) -> Reply:
            size = len(request.body) // 4
            if has_message(request.system, "work.agent.history.2"):
                return Reply(text="SUMMARY", input_tokens=size)
            if left:
                command = {"command": f"echo {left.pop()}; printf '%0600d' 0"}
                return Reply(calls=[("execute_command", command)], input_tokens=size)
            return Reply(text="done", input_tokens=size)

        fake_model.answer_with(say)
        async with callboard.Root(config_dir=in_process_run.config):
            await callboard.run("a", "go", durable=True, id="run-1", yes=True)
        rows = in_process_run.read()
        summed = next(
            n
            for n, (_, row) in enumerate(rows, 1)
            if isinstance(row, MessageRow) and isinstance(row.message, Summarized)
        )
        changed = (
            (in_process_run.config / "agents" / "a" / "config.yaml")
            .read_text()
            .replace("threshold: 400", "threshold: 90000")
        )
        (in_process_run.config / "agents" / "a" / "config.yaml").write_text(changed)
        forked = await in_process_run.fork(summed, with_changes=True, model="fake:other")
        assert (forked.status, forked.error) == ("done", None)


async def test_steps_are_named_as_people_know_them(in_process_run: InProcessRun) -> None:
    await in_process_run.begin()
    rows = in_process_run.read()
    found = steps(rows, nodes_of(rows, in_process_run.config))
    assert [step.row for step in found] == list(range(1, len(rows) + 1))
    assert [found[0].what, found[0].text, found[1].what] == ["begun", "g hello", "graph begins"]
    said = [(step.where, step.what, step.text) for step in found]
    assert ("first#1", "about to", "the script 'first.sh'") in said
    assert ("first#1", "left", "first=began -> each") in said
    assert ("each#1/item[0]", "reply", "<ITEM 1>") in said
    assert ("each#1/item_script[2]", "left", "done_item=<ITEM 3> 3") in said
    assert any(where == "tool#1/execute_command" and what == "result" for where, what, _ in said)
    assert any(where == "helper#1/todo__add" and what == "call" for where, what, _ in said)
    assert ("name#1", "question", "Your name? (q-1-1)") in said
    assert ("name#1", "answer", "Al (by person)") in said
    assert found[-1].what == "over"
    assert not any("work " in step.where for step in found)
    without = steps(rows)
    assert sum(one.where != other.where for one, other in zip(found, without, strict=True)) == 0
