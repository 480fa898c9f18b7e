"""Parents and children as whole agents, over the wire: spawned, asked, answered, cancelled."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import trio
from support.agent_runs import AgentRunner
from support.descendants import living
from support.fake_models import Reply, Request
from support.messages import has_message
from support.second_decider import twins
from support.waiting import until

from callboard.actors.engine.conversation.decider import ConversationDecider
from callboard.protocol.events import Event
from callboard.protocol.kernel.questions import Question

PARENT = """
can_spawn_agents: true
max_concurrent_agents: 8
can_ask_user: false
"""


def spawned(request: Request) -> list[str]:
    """Ids of the children that the parent has been told of."""
    found = []
    for text in request.results:
        told = json.loads(text.split("\n\n")[0])
        if isinstance(told, dict) and str(told.get("id", "")).startswith("agent_"):
            found.append(told["id"])
    return list(dict.fromkeys(found))


def turns(request: Request) -> int:
    """How often the model has spoken in this conversation."""
    return sum(message["role"] == "assistant" for message in request.json["messages"])


class People:
    """A front end that collects questions and answers when told to."""

    def __init__(self, agent_runner: AgentRunner, name: str = "people") -> None:
        self.name = name
        self.questions: list[Question] = []
        self.closed_by: dict[str, str] = {}
        self._desk = agent_runner.root.questions
        self._news = trio.Event()

    def asked(self, question: Question) -> None:
        self.questions.append(question)
        self._news.set()
        self._news = trio.Event()

    def closed(self, question_id: str, by: str) -> None:
        self.closed_by[question_id] = by

    async def count(self, number: int) -> None:
        while len(self.questions) < number:
            await self._news.wait()

    def answer(self, question: Question, value: str) -> bool:
        return self._desk.answer(question.id, value, by=self.name)


def eight_who_ask(request: Request) -> Reply | str:
    """The parent spawns eight children and collects them; each child asks once and tells the answer."""
    prompt = request.json["messages"][1]["content"] if request.system else request.json["messages"][0]["content"]
    if prompt.startswith("child"):
        if not request.results:
            return Reply(calls=[("user__input", {"question": f"Who are you, {prompt}?"})])
        return f"{prompt} is {json.loads(request.results[0])['answer']}"
    if turns(request) == 0:
        return Reply(calls=[("agent__spawn", {"agent": "kid", "prompt": f"child {i}"}) for i in range(8)])
    ids = spawned(request)
    done = [json.loads(text) for text in request.results if '"exit_status"' in text]
    left = [id for id in ids if id not in {each["id"] for each in done}]
    if left:
        return Reply(calls=[("agent__collect", {"id": id}) for id in left])
    return " / ".join(sorted(each["output"] for each in done))


async def ask_and_answer(agent_runner: AgentRunner, seed: int) -> None:
    rng = random.Random(seed)
    order = list(range(8))
    rng.shuffle(order)
    people = [People(agent_runner, name) for name in ("terminal", "browser", "phone")]
    agent_runner.plain(PARENT, name="boss")
    agent_runner.plain("instructions: ask", name="kid")
    agent_runner.models.answer_with(eight_who_ask)
    outcome: list[Any] = []

    async def run() -> None:
        outcome.append(await agent_runner.run("go", target="boss"))

    desk = agent_runner.root.questions
    with desk.attach(people[0]), desk.attach(people[1]), desk.attach(people[2]):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            for person in people:
                await person.count(8)
            by_child = {question.text: question for question in people[0].questions}
            for number in order:
                question = by_child[f"Who are you, child {number}?"]
                who = rng.choice(people)
                assert who.answer(question, f"n{number}")
                assert not rng.choice(people).answer(question, "too late")
                assert {person.closed_by[question.id] for person in people} == {who.name}
                if rng.random() < 0.3:
                    await trio.testing.wait_all_tasks_blocked()
    assert outcome[0].output == " / ".join(f"child {i} is n{i}" for i in range(8))
    assert [child.status for child in outcome[0].children] == ["completed"] * 8
    assert agent_runner.kinds("actor.restarted") == []
    assert Counter(agent_runner.kinds("question")) == {"question.asked": 8, "question.answered": 8}
    agent_runner.check_stream()


@pytest.mark.sample(6)
@pytest.mark.parametrize("seed", range(20))
async def test_eight_children_are_answered_in_any_order_over_three_front_ends(
    agent_runner: AgentRunner, seed: int
) -> None:
    await ask_and_answer(agent_runner, seed)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(20, 200))
async def test_eight_children_are_answered_in_two_hundred_orders(agent_runner: AgentRunner, seed: int) -> None:
    await ask_and_answer(agent_runner, seed)


async def test_unanswered_children_go_by_their_own_judgment_after_the_timeout(
    agent_runner: AgentRunner, autojump_clock: trio.testing.MockClock
) -> None:
    agent_runner.plain(PARENT + "escalation_timeout: 60", name="boss")
    agent_runner.plain("instructions: ask", name="kid")

    def answer(request: Request) -> Reply | str:
        first = request.json["messages"][-1]
        if "child" in str(request.json["messages"][1]["content"]):
            return request.results[0] if request.results else Reply(calls=[("user__input", {"question": "Who?"})])
        if turns(request) == 0:
            return Reply(calls=[("agent__spawn", {"agent": "kid", "prompt": "child 1"})])
        if first["role"] == "tool" and '"exit_status"' in first["content"]:
            return str(json.loads(first["content"])["output"])
        return Reply(calls=[("agent__collect", {"id": spawned(request)[0]})])

    agent_runner.models.answer_with(answer)
    outcome = await agent_runner.run("go", target="boss")
    assert json.loads(outcome.output) == {
        "error": "Escalation timed out after 60 seconds waiting for user response",
        "fallback": "Make your best judgment and proceed",
    }


async def test_the_parents_model_is_shown_the_question_and_may_answer_it(agent_runner: AgentRunner) -> None:
    agent_runner.plain(PARENT, name="boss")
    agent_runner.plain("instructions: ask", name="kid")

    def answer(request: Request) -> Reply | str:
        if "child" in str(request.json["messages"][1]["content"]):
            return request.results[0] if request.results else Reply(calls=[("user__confirm", {"question": "Really?"})])
        if turns(request) == 0:
            return Reply(calls=[("agent__spawn", {"agent": "kid", "prompt": "child 1"})])
        last = json.loads(request.results[-1].split("\n\n")[0])
        if "pending_escalations" in last:
            (escalation,) = last["pending_escalations"]
            assert escalation["question"] == "[confirm] Really?"
            return Reply(
                calls=[("agent__reply_escalation", {"escalation_id": escalation["escalation_id"], "reply": "no"})]
            )
        if "exit_status" in last:
            return str(last["output"])
        return Reply(calls=[("agent__collect", {"id": spawned(request)[0]})])

    agent_runner.models.answer_with(answer)
    outcome = await agent_runner.run("go", target="boss")
    assert outcome.output == '{"answer":"no"}'
    (answered,) = agent_runner.of("question.answered")
    assert answered.by.endswith("/boss")


async def test_a_grandchilds_question_reaches_the_root_with_its_path(agent_runner: AgentRunner) -> None:
    agent_runner.plain(PARENT, name="boss")
    agent_runner.plain(PARENT, name="middle")
    agent_runner.plain("instructions: ask", name="kid")

    def answer(request: Request) -> Reply | str:
        prompt = str(request.json["messages"][1]["content"])
        if prompt == "leaf":
            return request.results[0] if request.results else Reply(calls=[("user__input", {"question": "Who?"})])
        if turns(request) == 0:
            agent, next_prompt = ("middle", "branch") if prompt == "go" else ("kid", "leaf")
            return Reply(calls=[("agent__spawn", {"agent": agent, "prompt": next_prompt})])
        last = json.loads(request.results[-1].split("\n\n")[0])
        if "exit_status" in last:
            return str(last["output"])
        return Reply(calls=[("agent__collect", {"id": spawned(request)[0]})])

    agent_runner.models.answer_with(answer)
    people = People(agent_runner)
    outcome: list[Any] = []
    with agent_runner.root.questions.attach(people):
        async with trio.open_nursery() as nursery:

            async def run() -> None:
                outcome.append(await agent_runner.run("go", target="boss"))

            nursery.start_soon(run)
            await people.count(1)
            (question,) = people.questions
            parts = question.actor.split("/")
            assert parts[2:4] == ["boss", "children"]
            assert parts[4].startswith("agent_middle_")
            assert parts[5:7] == ["middle", "children"]
            assert parts[7].startswith("agent_kid_")
            assert parts[8:] == ["kid", "user__input"]
            people.answer(question, "me")
    assert outcome[0].output == '{"answer":"me"}'
    (middle,) = outcome[0].children
    assert [child.agent for child in middle.children] == ["kid"]


# --- cancelled at any moment ------------------------------------------------------------------------------


def busy(request: Request) -> Reply | str:
    """A parent of four: one waits for its model, one in a tool, one for an answer, one is spawned late."""
    prompt = str(request.json["messages"][1]["content"])
    if prompt == "model":
        return Reply(text="thinking", delay=3_600) if request.results else Reply(text="hm", calls=[("quick", {})])
    if prompt == "tool":
        return Reply(text="I will wait", calls=[("slow", {})])
    if prompt == "ask":
        return Reply(text="I will ask", calls=[("user__input", {"question": "Who?"})])
    if turns(request) == 0:
        return Reply(
            text="I spawn",
            calls=[("agent__spawn", {"agent": "kid", "prompt": kind}) for kind in ("model", "tool", "ask")],
        )
    if turns(request) == 1:
        return Reply(text="one more", calls=[("agent__spawn", {"agent": "kid", "prompt": "tool"})])
    return Reply(text="I collect", calls=[("agent__collect", {"id": id}) for id in spawned(request)])


TOOLS = '''
import time

def quick():
    """Returns at once."""

def slow():
    """Sleeps."""
    time.sleep(3600)
'''


async def cancel_at(agent_runner: AgentRunner, moment: int) -> bool:
    """Run, cancel at the event of that number, check that all is over; whether it came to that event."""
    agent_runner.plain(PARENT, name="boss")
    (agent_runner.plain("instructions: work", name="kid") / "tools.py").write_text(TOOLS)
    agent_runner.models.answer_with(busy)
    before = living(agent_runner.root.kernel)
    count = 0
    with trio.CancelScope() as scope, agent_runner.root.questions.attach(People(agent_runner)):

        def on_event(event: Event) -> None:
            nonlocal count
            count += 1
            if count == moment:
                scope.cancel()

        with trio.move_on_after(3):
            await agent_runner.run("go", target="boss", on_event=on_event)
    agent_runner.check_stream()
    assert agent_runner.events[-1].kind == "run.cancelled"
    check_ends(agent_runner.events)
    assert {process.pid: process.cmdline() for process in living(agent_runner.root.kernel) - before} == {}
    assert agent_runner.root.questions.open == ()
    children = agent_runner.events[-1].data.outcome["children"]
    said = {child["output"] for child in children}
    assert {child["status"] for child in children} <= {"cancelled"}
    assert said <= {"", "hm", "I will wait", "I will ask"}
    responses = sum(event.kind == "llm.response" and "/children/" in event.actor for event in agent_runner.events)
    assert sum(child["turns"] for child in children) >= responses - len(children)
    return scope.cancel_called


def check_ends(events: list[Event]) -> None:
    """Every actor that was spawned has ended, once."""
    spawned_paths = Counter(event.actor for event in events if event.kind == "actor.spawned")
    ended = Counter(event.actor for event in events if event.kind in ("actor.stopped", "actor.failed"))
    assert spawned_paths == ended
    calls = Counter(event.id for event in events if event.kind == "tool.call.started" and event.id)
    assert calls == Counter(event.id for event in events if event.kind == "tool.call.finished" and event.id)


MOMENTS = [random.Random(seed).randrange(3, 100) for seed in range(100)]


@pytest.mark.parametrize("moment", MOMENTS[:10])
@pytest.mark.sample(4)
async def test_cancelled_at_any_moment_a_family_leaves_nothing(agent_runner: AgentRunner, moment: int) -> None:
    await cancel_at(agent_runner, moment)


@pytest.mark.soak
@pytest.mark.parametrize("moment", MOMENTS)
async def test_cancelled_at_a_hundred_moments_a_family_leaves_nothing(agent_runner: AgentRunner, moment: int) -> None:
    await cancel_at(agent_runner, moment)


async def test_what_cancelled_children_had_said_is_in_the_parents_record(
    agent_runner: AgentRunner, tmp_path: Path
) -> None:
    agent_runner.plain(PARENT, name="boss")
    (agent_runner.plain("instructions: work", name="kid") / "tools.py").write_text(TOOLS)
    agent_runner.models.answer_with(busy)
    people = People(agent_runner)
    with trio.CancelScope() as scope, agent_runner.root.questions.attach(people):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(agent_runner.run, "go", "boss")

            def under_way(tool: str) -> int:
                kinds = ("tool.call.started", "tool.call.finished")
                started, finished = ([data.tool for data in agent_runner.of(kind)].count(tool) for kind in kinds)
                return started - finished

            # A collect that is under way when a child asks returns with the question, and is made again.
            await until(lambda: (under_way("slow"), under_way("user__input"), under_way("agent__collect")) == (2, 1, 4))
            scope.cancel()
    outcome = agent_runner.events[-1].data.outcome
    said = sorted(child["output"] for child in outcome["children"])
    assert said == ["I will ask", "I will wait", "I will wait", "hm"]
    assert {child["status"] for child in outcome["children"]} == {"cancelled"}


@pytest.mark.parametrize("moment", [40, 60, 80])
async def test_the_record_of_an_agent_follows_from_its_messages(agent_runner: AgentRunner, moment: int) -> None:
    with twins() as made:
        await cancel_at(agent_runner, moment)
    talked = [(twin.first, twin.twin) for twin in made if isinstance(twin.first, ConversationDecider)]
    assert any(talk.record.children for talk, _ in talked)
    assert [talk.record for talk, _ in talked] == [again.record for _, again in talked]


async def test_what_a_reply_had_said_when_it_was_cancelled_is_kept(agent_runner: AgentRunner) -> None:
    agent_runner.plain(PARENT, name="boss")
    agent_runner.plain("instructions: work", name="kid")

    def answer(request: Request) -> Reply | str:
        if request.json["messages"][-1]["content"] == "talk":
            return Reply(text="word " * 40, gap=0.05)
        if turns(request) == 0:
            return Reply(calls=[("agent__spawn", {"agent": "kid", "prompt": "talk"})])
        return Reply(calls=[("agent__collect", {"id": spawned(request)[0]})])

    agent_runner.models.answer_with(answer)
    with trio.CancelScope() as scope:

        def on_event(event: Event) -> None:
            if event.kind == "llm.delta" and len(agent_runner.of("llm.delta")) == 10:
                scope.cancel()

        await agent_runner.run("go", target="boss", on_event=on_event)
    (child,) = agent_runner.events[-1].data.outcome["children"]
    assert child["output"].startswith("word word ")


async def test_what_a_child_graph_had_said_when_it_was_cancelled_is_kept(agent_runner: AgentRunner) -> None:
    agent_runner.plain(PARENT, name="boss")
    agent_runner.agent(
        """
        start: a
        nodes:
          a: {type: llm, prompt: first, next: b}
          b: {type: llm, prompt: second, next: e}
          e: {type: end}
        """,
        name="kid",
    )

    def answer(request: Request) -> Reply | str:
        last = request.json["messages"][-1]["content"]
        if last in ("first", "second"):
            return Reply(text="one done") if last == "first" else Reply(delay=3_600)
        if turns(request) == 0:
            return Reply(calls=[("agent__spawn", {"agent": "kid", "prompt": "work"})])
        return Reply(calls=[("agent__collect", {"id": spawned(request)[0]})])

    agent_runner.models.answer_with(answer)
    with trio.CancelScope() as scope:

        def on_event(event: Event) -> None:
            if event.kind == "node.entered" and event.data.node == "b":
                scope.cancel()

        await agent_runner.run("go", target="boss", on_event=on_event)
    (child,) = agent_runner.events[-1].data.outcome["children"]
    assert (child["output"], child["turns"]) == ("one done", 1)


async def test_a_question_of_a_childs_tool_ends_in_time_where_nobody_is(agent_runner: AgentRunner) -> None:
    agent_runner.plain(PARENT + "escalation_timeout: 1", name="boss")
    (agent_runner.plain("instructions: work", name="kid") / "tools.py").write_text(
        'def ask():\n    """Asks."""\n    return input("Who?")\n'
    )

    def answer(request: Request) -> Reply | str:
        if request.json["messages"][1]["content"] == "work":
            return request.results[0] if request.results else Reply(calls=[("ask", {})])
        if turns(request) == 0:
            return Reply(calls=[("agent__spawn", {"agent": "kid", "prompt": "work"})])
        last = json.loads(request.results[-1].split("\n\n")[0])
        return (
            str(last["output"])
            if "exit_status" in last
            else Reply(calls=[("agent__collect", {"id": spawned(request)[0]})])
        )

    agent_runner.models.answer_with(answer)
    outcome = await agent_runner.run("go", target="boss")
    assert "tool_call_error" in outcome.output
    assert has_message(outcome.output, "supervisors.escalation._too_late", seconds=1)


def collects_one(request: Request) -> Reply | str:
    """The parent spawns one child, collects it, and says how it ended; the child's model is not to be had."""
    if request.prompt.startswith("child"):
        return Reply(status=404, error="no such model")
    if turns(request) == 0:
        return Reply(calls=[("agent__spawn", {"agent": "kid", "prompt": "child"})])
    if turns(request) == 1:
        return Reply(calls=[("agent__collect", {"id": spawned(request)[0]})])
    told = json.loads(request.results[-1])
    return f"{told['exit_status']} {told['output']}"


async def test_a_spawned_graph_that_goes_on_over_a_failure_is_failed_for_its_parent_and_for_the_run(
    agent_runner: AgentRunner,
) -> None:
    agent_runner.plain(PARENT, name="boss")
    agent_runner.agent(
        """
        start: a
        nodes:
          a: {type: llm, prompt: "{{initial_prompt}}", max_attempts: 1, state_updates: {x: "{{output}}"}, next: b}
          b: {type: end, output: "so {{x}}"}
        """,
        name="kid",
    )
    agent_runner.models.answer_with(collects_one)
    outcome = await agent_runner.run("go", target="boss")
    cause = "fake:model: no such model (HTTP 404)"
    assert outcome.output == f'Failed("{cause}") so LLM node failed: {cause}'
    (child,) = outcome.children
    assert (child.status, child.error, child.output) == ("failed", cause, f"so LLM node failed: {cause}")
    assert (outcome.status, outcome.exit_code) == ("failed", 1)
    assert [(failure.node, failure.message) for failure in outcome.failures] == [("a", cause)]


async def test_a_spawned_agent_that_fails_is_a_result_that_its_parent_reads(agent_runner: AgentRunner) -> None:
    agent_runner.plain(PARENT, name="boss")
    agent_runner.plain("instructions: kid\ncan_ask_user: false", name="kid")
    agent_runner.models.answer_with(collects_one)
    outcome = await agent_runner.run("go", target="boss")
    assert outcome.output.startswith("Failed(\"Agent 'kid' failed: fake:model: no such model (HTTP 404)\")")
    assert (outcome.status, outcome.children[0].status, outcome.failures) == ("done", "failed", [])
