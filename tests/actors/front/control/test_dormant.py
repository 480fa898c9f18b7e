"""Runs that wait for people alone are played no more until an answer comes."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from support.control_hub import hub_of
from support.fake_models import FakeModels, Reply, Request
from support.waiting import until

import callboard
from callboard.actors.front.control.hub import Hub
from callboard.actors.io.directories import journal_dir
from callboard.protocol.control import method_structs
from callboard.protocol.control.caller import LOCAL
from callboard.protocol.control.resources import QuestionAsked, QuestionClosed
from callboard.protocol.errors import JournalUnread
from callboard.protocol.journal import BY_SERVER

LATE = """
name: late
start: ask
nodes:
  ask: {type: input, question: "Who?", timeout: 900, state_updates: {who: "{{input}}"}, next: done}
  done: {type: end, output: "{{who}}"}
"""


REQUESTS = 2
"""Of `two`."""


def say(request: Request) -> Reply:
    if request.results:
        return Reply(text=" ".join(sorted(word for word in WORDS if any(word in each for each in request.results))))
    return Reply(calls=[("user__input", {"question": "Left?"}), ("user__input", {"question": "Right?"})])


WORDS = ("first", "left", "right", "second")
"""What people answer."""


class DormantHubs:
    """A configuration with agents, and hubs of one process after another."""

    def __init__(self, home: Path, models: FakeModels) -> None:
        self.home = home
        self.models = models
        self.config = models.config_dir(home / "config")
        settings = json.loads((self.config / "config.yaml").read_text()) | {"durable": {"dormant_after": 0}}
        (self.config / "config.yaml").write_text(json.dumps(settings))
        self.put("late/graph.yaml", LATE)
        self.put("two/config.yaml", "name: two\ninstructions: TWO\n")
        models.answer_with(say)

    def put(self, name: str, text: str) -> None:
        file = self.config / "agents" / name
        file.parent.mkdir(parents=True)
        file.write_text(text)

    @asynccontextmanager
    async def hub(self) -> AsyncIterator[Hub]:
        async with (
            callboard.Root(config_dir=self.config, wait_for_front_end=True) as root,
            hub_of(root, self.home / "state", durable=True, by=BY_SERVER) as hub,
        ):
            hub.resuming.expect()
            hub.running.nursery.start_soon(hub.resuming.work)
            yield hub


@pytest.fixture
def dormant_hubs(tmp_path: Path, fake_model: FakeModels) -> DormantHubs:
    return DormantHubs(tmp_path, fake_model)


async def sleeping(hub: Hub, target: str, **wanted: Any) -> str:
    """A run that is dormant; its id."""
    info = await hub.start(LOCAL, method_structs.StartRun(target=target, prompt="dogs", **wanted))
    await until(lambda: info.run in hub.dormant.runs, 60)
    return info.run


def questions(hub: Hub, run: str) -> dict[str, str]:
    return {question.text.strip().splitlines()[0]: question.id for question in hub.questions(LOCAL, run)}


def answer_to(question: str) -> str:
    return question.rstrip("?\n").split()[-1].lower()


async def output(hub: Hub, run: str) -> str:
    with trio.fail_after(60):
        outcome = await hub.wait(LOCAL, run)
    assert outcome.status == "done", outcome
    return outcome.output


async def test_what_stays_of_it_is_what_lists_show_and_no_task(dormant_hubs: DormantHubs) -> None:
    async with dormant_hubs.hub() as hub:
        await sleeping(hub, "two")
        tasks = trio.lowlevel.current_statistics().tasks_living
        run = await sleeping(hub, "two")
        info = hub.get(LOCAL, run)
        assert (info.status, info.open_questions, info.over) == ("waiting", 2, False)
        assert hub.list(LOCAL, status="waiting")[0].run == run
        assert questions(hub, run).keys() == {"Left?", "Right?"}
        assert hub.root.kernel.actor.child(run) is None
        assert run not in hub.root.kept
        await until(lambda: run not in hub.running.live, 60)
        assert trio.lowlevel.current_statistics().tasks_living <= tasks
        assert hub.under_way == 0


async def test_each_answer_has_it_go_on_to_the_same_end_without_asking_the_model_again(
    dormant_hubs: DormantHubs,
) -> None:
    async with dormant_hubs.hub() as hub:
        run = await sleeping(hub, "two")
        asked = questions(hub, run)
        assert await hub.answer(LOCAL, asked["Left?"], "left")
        await until(lambda: questions(hub, run) == {"Right?": asked["Right?"]} and run in hub.dormant.runs, 60)
        assert await hub.answer(LOCAL, asked["Right?"], "right")
        assert await output(hub, run) == "left right"
        assert len(dormant_hubs.models.requests) == REQUESTS
        assert not await hub.answer(LOCAL, asked["Right?"], "again")


async def test_two_answers_at_once_count_both(dormant_hubs: DormantHubs) -> None:
    async with dormant_hubs.hub() as hub:
        run = await sleeping(hub, "two")
        counted = []

        async def answer(id: str, value: str) -> None:
            counted.append(await hub.answer(LOCAL, id, value))

        async with trio.open_nursery() as nursery:
            for text, id in questions(hub, run).items():
                nursery.start_soon(answer, id, answer_to(text))
        assert counted == [True, True]
        assert await output(hub, run) == "left right"


async def test_of_two_answers_to_one_question_the_first_counts(dormant_hubs: DormantHubs) -> None:
    async with dormant_hubs.hub() as hub:
        run = await sleeping(hub, "two")
        asked, counted = questions(hub, run), []

        async def answer(value: str) -> None:
            counted.append((await hub.answer(LOCAL, asked["Left?"], value), value))

        async with trio.open_nursery() as nursery:
            for value in ("first", "second"):
                nursery.start_soon(answer, value)
        (won,) = [value for counts, value in counted if counts]
        assert await hub.answer(LOCAL, asked["Right?"], "right")
        assert await output(hub, run) == f"{won} right" if won < "right" else f"right {won}"


async def test_who_watches_the_questions_hears_of_each_once(dormant_hubs: DormantHubs) -> None:
    async with dormant_hubs.hub() as hub:
        with hub.watch_questions(LOCAL) as feed:
            run = await sleeping(hub, "two")
            asked = questions(hub, run)
            for text in ("Left?", "Right?"):
                assert await hub.answer(LOCAL, asked[text], answer_to(text))
            await output(hub, run)
            heard = []
            with trio.fail_after(60):
                while len(heard) < 4:
                    heard.append(await anext(feed))
        told = [each.question["id"] for each in heard if isinstance(each, QuestionAsked)]
        closed = [each.question for each in heard if isinstance(each, QuestionClosed)]
        assert sorted(told) == sorted(closed) == sorted(asked.values())


async def test_its_events_are_one_sequence_without_gaps_or_repeats(dormant_hubs: DormantHubs) -> None:
    async with dormant_hubs.hub() as hub:
        run = await sleeping(hub, "two")
        for text, id in questions(hub, run).items():
            await hub.answer(LOCAL, id, answer_to(text))
            await hub.dormant.settled(run)
        await output(hub, run)
        with trio.fail_after(60), hub.subscribe(LOCAL, run, after=0) as events:
            told = [json.loads(event.data) async for event in events]
    assert [each["seq"] for each in told] == list(range(1, len(told) + 1))
    kinds = [each["type"] if "type" in each else each["kind"] for each in told]
    assert kinds[-1] == "run.finished"
    assert "run.resumed" in kinds
    assert "question.expired" not in kinds
    assert kinds.count("run.cancelled") == 0


async def test_the_next_server_finds_it_dormant_and_does_not_play_it_until_an_answer_comes(
    dormant_hubs: DormantHubs,
) -> None:
    async with dormant_hubs.hub() as hub:
        run = await sleeping(hub, "two")
        asked = questions(hub, run)
    for _ in range(4):  # more often than what is stuck is tried
        async with dormant_hubs.hub() as hub:
            await until(lambda: run in hub.dormant.runs, 60)
            assert questions(hub, run) == asked
            assert hub.root.kernel.actor.child(run) is None
    async with dormant_hubs.hub() as hub:
        await until(lambda: run in hub.dormant.runs, 60)
        for text, id in asked.items():
            assert await hub.answer(LOCAL, id, answer_to(text))
        assert await output(hub, run) == "left right"
    assert len(dormant_hubs.models.requests) == REQUESTS


async def test_it_can_be_cancelled(dormant_hubs: DormantHubs) -> None:
    async with dormant_hubs.hub() as hub:
        run = await sleeping(hub, "two")
        assert hub.cancel(LOCAL, run)
        with trio.fail_after(60):
            assert (await hub.wait(LOCAL, run)).status == "cancelled"
        assert not questions(hub, run)
        assert run not in hub.dormant.runs
    async with dormant_hubs.hub() as hub:
        assert hub.get(LOCAL, run).status == "cancelled"


async def test_a_run_with_a_time_limit_that_counts_is_played(dormant_hubs: DormantHubs) -> None:
    async with dormant_hubs.hub() as hub:
        info = await hub.start(LOCAL, method_structs.StartRun(target="late", prompt="x"))
        await until(lambda: questions(hub, info.run), 60)
        await trio.sleep(0.3)
        assert info.run not in hub.dormant.runs
        assert await hub.answer(LOCAL, questions(hub, info.run)["Who?"], "me")
        assert await output(hub, info.run) == "me"


async def test_who_waits_for_its_next_event_keeps_it_played(dormant_hubs: DormantHubs) -> None:
    async with dormant_hubs.hub() as hub:
        info = await hub.start(LOCAL, method_structs.StartRun(target="two", prompt="dogs"))
        async with trio.open_nursery() as nursery:
            ended: list[str] = []

            async def wait() -> None:
                ended.append((await hub.wait(LOCAL, info.run)).output)

            nursery.start_soon(wait)
            await until(lambda: len(questions(hub, info.run)) == 2, 60)
            await trio.sleep(0.3)
            assert info.run not in hub.dormant.runs
            for text, id in questions(hub, info.run).items():
                assert await hub.answer(LOCAL, id, answer_to(text))
        assert ended == ["left right"]


async def test_an_answer_that_can_t_be_kept_is_not_taken_and_may_be_given_again(dormant_hubs: DormantHubs) -> None:
    async with dormant_hubs.hub() as hub:
        run = await sleeping(hub, "two")
        asked = questions(hub, run)
        (path,) = journal_dir(os.environ).glob("*.db")
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("begin immediate")
            with pytest.raises(JournalUnread):
                await hub.answer(LOCAL, asked["Left?"], "left")
        assert questions(hub, run) == asked
        for text, id in asked.items():
            assert await hub.answer(LOCAL, id, answer_to(text))
        assert await output(hub, run) == "left right"


async def test_one_that_can_t_be_read_now_goes_on_when_it_is_resumed(
    dormant_hubs: DormantHubs, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with dormant_hubs.hub() as hub:
        run = await sleeping(hub, "two")
        asked = questions(hub, run)
        away = journal_dir(os.environ).with_name("away")
        with monkeypatch.context() as elsewhere:
            elsewhere.setattr("callboard.actors.runs.durable.journal_dir", lambda _: away)
            assert await hub.answer(LOCAL, asked["Left?"], "left")
            await hub.dormant.settled(run)
        assert hub.dormant.has(run)
        assert questions(hub, run).keys() == {"Right?"}
        await hub.resume(LOCAL, run)
        assert await hub.answer(LOCAL, asked["Right?"], "right")
        assert await output(hub, run) == "left right"


async def test_a_run_that_a_program_plays_beside_the_hub_stays_the_program_s(dormant_hubs: DormantHubs) -> None:
    async with dormant_hubs.hub() as hub, trio.open_nursery() as nursery:
        ended: list[callboard.Outcome] = []

        async def play() -> None:
            ended.append(await callboard.run("two", "dogs", root=hub.root, id="run-beside", durable=True))

        nursery.start_soon(play)
        await until(lambda: "run-beside" in hub.running.live, 60)
        await until(lambda: len(questions(hub, "run-beside")) == 2, 60)
        await trio.sleep(0.3)
        assert not hub.dormant.has("run-beside")
        for text, id in questions(hub, "run-beside").items():
            assert await hub.answer(LOCAL, id, answer_to(text))
    assert [(each.status, each.output) for each in ended] == [("done", "left right")]


async def test_who_follows_it_keeps_it_played(dormant_hubs: DormantHubs) -> None:
    async with dormant_hubs.hub() as hub:
        info = await hub.start(LOCAL, method_structs.StartRun(target="two", prompt="dogs"))
        with hub.subscribe(LOCAL, info.run) as events:
            await until(lambda: len(questions(hub, info.run)) == 2, 60)
            await trio.sleep(0.3)
            assert not hub.dormant.has(info.run)
            del events
        await until(lambda: info.run in hub.dormant.runs, 60)


async def test_an_agent_that_asks_while_its_child_waits_for_its_model_is_played(dormant_hubs: DormantHubs) -> None:
    spawn = ("agent__spawn", {"agent": "child", "prompt": "think"})
    dormant_hubs.put(
        "lead/config.yaml", "name: lead\ninstructions: LEAD\ncan_spawn_agents: true\nescalation_timeout: 86400\n"
    )
    dormant_hubs.put("child/config.yaml", "name: child\ninstructions: CHILD\n")
    held = trio.Event()

    def think(request: Request) -> Reply:
        if "CHILD" in request.system:
            return Reply(text="thought", hold=held)
        calls = [[spawn], [("user__input", {"question": "Well?"})]]
        done = len(request.results)
        return Reply(calls=calls[done]) if done < 2 else Reply(text="over")

    dormant_hubs.models.answer_with(think)
    async with dormant_hubs.hub() as hub:
        info = await hub.start(LOCAL, method_structs.StartRun(target="lead", prompt="go"))
        await until(lambda: questions(hub, info.run), 60)
        await trio.sleep(0.3)
        assert info.run not in hub.dormant.runs
        held.set()
        await trio.sleep(0.2)
        assert await hub.answer(LOCAL, questions(hub, info.run)["Well?"], "fine")
        assert await output(hub, info.run) == "over"


async def test_an_agent_that_has_asked_goes_on_in_its_conversation(dormant_hubs: DormantHubs) -> None:
    dormant_hubs.put("lead/config.yaml", "name: lead\ninstructions: LEAD\n")
    dormant_hubs.models.answer_with(
        lambda request: (
            Reply(text=f"so {request.results[-1]}")
            if request.results
            else Reply(calls=[("user__input", {"question": "Well?"})])
        )
    )
    async with dormant_hubs.hub() as hub:
        run = await sleeping(hub, "lead")
        (id,) = questions(hub, run).values()
        assert await hub.answer(LOCAL, id, "fine")
        assert "fine" in await output(hub, run)
    assert len(dormant_hubs.models.requests) == 2
