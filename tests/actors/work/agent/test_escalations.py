"""Questions of children: noted by their parents, shown to the people at the root, answered by whoever is first."""

from __future__ import annotations

import contextlib
import json
import random
from typing import Any

import pytest
import trio
import trio.testing
from support.messages import fragment, has_message
from support.tool_families import Parent, Person, nested, parent, says
from trio.testing import wait_all_tasks_blocked

from callboard.actors.work.agent.tool_families import user_tools
from callboard.actors.work.context import AgentCall
from callboard.protocol.errors import NobodyToAsk
from callboard.protocol.events import Event
from callboard.protocol.kernel.questions import Question
from callboard.supervisors import Actor, Root

FALLBACK = "Make your best judgment and proceed"


async def asks(me: Actor, call: AgentCall) -> str:
    """A child that asks what its prompt says (`tool|question|option|option`) and returns the result."""
    tool, question, *options = call.prompt.split("|")
    tools = {one.name: one for one in user_tools(timeout=call.escalation_timeout)}
    arguments = {"question": question, **({"options": options} if options else {})}

    async def body(calling: Actor) -> Any:
        return await tools[tool].run(calling, arguments)

    return str(await me.spawn(body, name=tool).result())


async def pending(boss: Parent) -> list[dict[str, Any]]:
    """What the parent's model is told after a turn."""
    await wait_all_tasks_blocked()
    await boss.call("agent__list")
    return list(json.loads(boss.notice)["pending_escalations"]) if boss.notice else []


async def test_case_87_a_childs_question_reaches_its_parents_model_which_answers() -> None:
    async with Root() as root, parent(root, {"asks": asks}) as boss:
        id = await boss.spawn("asks", "user__ask|Which way?|left|right")
        [told] = await pending(boss)
        assert told == {
            "escalation_id": told["escalation_id"],
            "from": f"/boss/children/{id}/asks/user__ask",
            "agent": id,
            "question": "[ask] Which way?",
            "options": ["left", "right"],
        }
        assert told["escalation_id"].startswith("esc_")
        assert len(told["escalation_id"]) == 12
        replied = await boss.call("agent__reply_escalation", escalation_id=told["escalation_id"], reply="left")
        assert replied["status"] == "ok"
        assert (await boss.call("agent__collect", id=id))["output"] == "{'answer': 'left'}"
        assert await pending(boss) == []


async def test_case_87_an_unknown_id_is_an_error_and_a_closed_one_another() -> None:
    async with Root() as root, parent(root, {"asks": asks}) as boss:
        await boss.spawn("asks", "user__input|Name?")
        [told] = await pending(boss)
        id = told["escalation_id"]
        unknown = await boss.call("agent__reply_escalation", escalation_id="esc_00000000", reply="x")
        assert unknown == {"status": "error", "message": f"Escalation 'esc_00000000' not found; pending: {id}"}
        assert (await boss.call("agent__reply_escalation", escalation_id=id, reply="x"))["status"] == "ok"
        again = await boss.call("agent__reply_escalation", escalation_id=id, reply="y")
        assert again["message"].startswith(f"Escalation '{id}' is no longer open")


async def test_case_87_after_300_seconds_of_silence_the_child_goes_on(autojump_clock: trio.testing.MockClock) -> None:
    async with Root() as root, parent(root, {"asks": asks}) as boss:
        id = await boss.spawn("asks", "user__confirm|Sure?")
        early = await boss.call("agent__collect", id=id)
        assert early["status"] == "pending"
        assert boss.notice == ""
        late = await boss.call("agent__collect", id=id)
        assert trio.current_time() == pytest.approx(300)
        error = "Escalation timed out after 300 seconds waiting for user response"
        assert late["output"] == str({"error": error, "fallback": FALLBACK})
        assert await pending(boss) == []


async def test_collect_returns_early_for_every_call_of_the_turn_and_only_once() -> None:
    door = trio.Event()

    async def asks_later(me: Actor, call: AgentCall) -> str:
        await door.wait()
        return await asks(me, call)

    async with Root() as root, parent(root, {"asks": asks_later, "says": says}) as boss:
        ids = [await boss.spawn("asks", f"user__input|{n}?") for n in range(3)]
        results: list[Any] = []
        async with trio.open_nursery() as nursery:

            async def collect() -> None:
                results.extend(await boss.turn(*[("agent__collect", {"id": id}) for id in ids]))

            nursery.start_soon(collect)
            await wait_all_tasks_blocked()
            door.set()
        assert [one["status"] for one in results] == ["pending"] * 3
        assert len(results[0]["pending_escalations"]) >= 1
        for one in await pending(boss):
            answer = f"re {one['question'].removeprefix('[input] ')}"
            await boss.call("agent__reply_escalation", escalation_id=one["escalation_id"], reply=answer)
        results = await boss.turn(*[("agent__collect", {"id": id}) for id in ids])
        assert [one["output"] for one in results] == [str({"answer": f"re {n}?"}) for n in range(3)]


async def test_what_is_open_is_told_after_every_turn_but_not_twice_in_one() -> None:
    async with Root() as root, parent(root, {"asks": asks}) as boss:
        id = await boss.spawn("asks", "user__input|Name?")
        assert (await boss.call("agent__collect", id=id))["pending_escalations"]
        assert boss.notice == ""
        for _ in range(2):
            assert [one["agent"] for one in await pending(boss)] == [id]


async def test_what_is_open_stands_behind_the_last_result_of_a_turn() -> None:
    async with Root() as root, parent(root, {"asks": asks}) as boss:
        await boss.spawn("asks", "user__input|Name?")
        await wait_all_tasks_blocked()
        first, last = await boss.turn(("agent__task_list", {}), ("agent__list", {}))
        assert (first, last["active_count"]) == ({"tasks": []}, 1)
        assert list(json.loads(boss.notice)) == ["pending_escalations", "instruction"]


async def test_a_person_at_the_root_may_be_faster_than_the_parent() -> None:
    person = Person()
    async with Root() as root, parent(root, {"asks": asks}) as boss:
        with root.questions.attach(person):
            id = await boss.spawn("asks", "user__input|Name?")
            [told] = await pending(boss)
            assert person.shown[0].actor == told["from"] == f"/boss/children/{id}/asks/user__input"
            assert root.questions.answer(person.shown[0].id, "Ada", "terminal")
            refused = await boss.call("agent__reply_escalation", escalation_id=told["escalation_id"], reply="Bob")
            assert refused["status"] == "error"
            assert (await boss.call("agent__collect", id=id))["output"] == "{'answer': 'Ada'}"


async def test_a_parent_that_answers_takes_the_question_from_the_people() -> None:
    person = Person()
    async with Root() as root, parent(root, {"asks": asks}) as boss:
        with root.questions.attach(person):
            await boss.spawn("asks", "user__input|Name?")
            [told] = await pending(boss)
            await boss.call("agent__reply_escalation", escalation_id=told["escalation_id"], reply="Bob")
            assert person.gone == [(person.shown[0].id, "/boss")]


async def test_the_parents_own_questions_are_not_its_escalations() -> None:
    async with Root() as root, parent(root, {}) as boss:
        result = await boss.call("user__input", question="Name?")
        assert has_message(result["error"], "work.agent.tool_families._ask.2")
        assert boss.team.escalations.pending == {}


@pytest.mark.parametrize("only_for_people", [{"permission": "execute_command"}, {"secret": True}])
async def test_permissions_and_secrets_are_for_people_only(only_for_people: dict[str, Any]) -> None:
    async def wants(me: Actor, call: AgentCall) -> str:
        with contextlib.suppress(NobodyToAsk):
            await me.ask_person(Question(id="", actor="", text="May I?", **only_for_people))
        return "asked"

    person = Person()
    async with Root() as root, parent(root, {"wants": wants}) as boss:
        with root.questions.attach(person):
            id = await boss.spawn("wants")
            assert await pending(boss) == []
            assert len(person.shown) == 1
        assert (await boss.call("agent__collect", id=id))["output"] == "asked"


async def test_a_grandchilds_question_is_noted_by_all_above_and_shows_its_path() -> None:
    middles: list[Parent] = []

    async def nests(me: Actor, call: AgentCall) -> str:
        async with nested(me, call) as middle:
            middles.append(middle)
            id = await middle.spawn("asks", call.prompt)
            await middle.call("agent__collect", id=id)
            return str((await middle.call("agent__collect", id=id))["output"])

    person = Person()
    async with Root() as root, parent(root, {"nests": nests, "asks": asks}) as boss:
        with root.questions.attach(person):
            id = await boss.spawn("nests", "user__confirm|Sure?")
            [told] = await pending(boss)
            [inner] = middles[0].team.escalations.pending.values()
            path = f"/boss/children/{id}/nests/nested/children/{inner.agent}/asks/user__confirm"
            assert (told["from"], told["agent"], person.shown[0].actor) == (path, id, path)
            await boss.call("agent__reply_escalation", escalation_id=told["escalation_id"], reply="No")
            assert (await boss.call("agent__collect", id=id))["output"] == "{'answer': 'no'}"
            assert middles[0].team.escalations.pending == {}


# --- replies --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("question", "reply", "output"),
    [
        ("user__ask|?|Left|right", "left", {"answer": "Left"}),
        ("user__ask|?|Left|right", "neither of them", {"answer": "neither of them"}),
        ("user__confirm|?", "Y", {"answer": "yes"}),
        ("user__confirm|?", "false", {"answer": "no"}),
        ("user__input|?", "[1] any text", {"answer": "[1] any text"}),
        ("user__checkbox|?|a|b|c", ["c", "A"], {"answers": ["c", "a"]}),
        ("user__checkbox|?|a|b|c", '["b"]', {"answers": ["b"]}),
        ("user__checkbox|?|a|b|c", "a, c", {"answers": ["a", "c"]}),
        ("user__checkbox|?|a, c|b", "a, c", {"answers": ["a, c"]}),
        ("user__checkbox|?|a|b", "", {"answers": []}),
    ],
)
async def test_a_reply_is_read_as_the_question_needs_it(question: str, reply: Any, output: dict[str, Any]) -> None:
    async with Root() as root, parent(root, {"asks": asks}) as boss:
        id = await boss.spawn("asks", question)
        [told] = await pending(boss)
        await boss.call("agent__reply_escalation", escalation_id=told["escalation_id"], reply=reply)
        assert (await boss.call("agent__collect", id=id))["output"] == str(output)


@pytest.mark.parametrize(
    ("question", "reply", "problem"),
    [
        ("user__confirm|?", "maybe", "The reply to a [confirm] question is yes or no, not 'maybe'"),
        ("user__checkbox|?|a|b", "a, z", "'z' is not among the options: a, b"),
        ("user__checkbox|?|a|b", "[a", fragment("work.agent.tool_families.read_texts", name="reply")),
        ("user__ask|?|a|b", ["a"], "The reply to this question is one text, not a list"),
    ],
)
async def test_a_reply_that_does_not_fit_is_told_and_the_question_stays(
    question: str, reply: Any, problem: str
) -> None:
    async with Root() as root, parent(root, {"asks": asks}) as boss:
        await boss.spawn("asks", question)
        [told] = await pending(boss)
        result = await boss.call("agent__reply_escalation", escalation_id=told["escalation_id"], reply=reply)
        assert result["status"] == "error"
        assert result["message"].startswith(problem)
        assert [one["escalation_id"] for one in await pending(boss)] == [told["escalation_id"]]


# --- many at once ---------------------------------------------------------------------------------------------

ORDERS = [pytest.param(seed, marks=[pytest.mark.soak] if seed >= 20 else []) for seed in range(200)]


@pytest.mark.parametrize("seed", ORDERS)
@pytest.mark.sample(5)
async def test_eight_children_ask_at_once_and_each_answer_unblocks_only_its_own(
    seed: int, autojump_clock: trio.testing.MockClock
) -> None:
    """Answered in any order, by three front ends and the parent's model; two are never answered."""
    rng = random.Random(seed)
    events: list[Event] = []
    ticks = 0

    async def works(me: Actor, call: AgentCall) -> str:
        nonlocal ticks
        for _ in range(100):
            await trio.sleep(1)
            ticks += 1
        return "worked"

    people = [Person("terminal"), Person("browser"), Person("api")]
    players = {"asks": asks, "works": works}
    async with Root() as root, parent(root, players, max_concurrent_agents=9) as boss:
        with contextlib.ExitStack() as stack:
            stack.enter_context(root.bus.listen(events.append))
            for person in people:
                stack.enter_context(root.questions.attach(person))
            ids = [await boss.spawn("asks", f"user__input|question {n}") for n in range(8)]
            worker = await boss.spawn("works")
            told = {one["agent"]: one["escalation_id"] for one in await pending(boss)}
            assert sorted(told) == sorted(ids)
            shown = {question.text: question.id for question in people[0].shown}
            assert all(len(person.shown) == 8 for person in people)

            order = rng.sample(range(8), 6)
            for place, n in enumerate(order):
                await trio.sleep(rng.random())
                who = rng.choice(["/boss", "terminal", "browser", "api"])
                if who == "/boss":
                    await boss.call("agent__reply_escalation", escalation_id=told[ids[n]], reply=f"answer {n}")
                else:
                    assert root.questions.answer(shown[f"question {n}"], f"answer {n}", who)
                assert not root.questions.answer(shown[f"question {n}"], "too late", "terminal")
                await wait_all_tasks_blocked()
                ended = {id for id, child in boss.team.children.items() if not child.running}
                assert ended == {ids[m] for m in order[: place + 1]}
                assert all(person.gone[-1] == (shown[f"question {n}"], who) for person in people)

            for n in range(8):
                result = await boss.call("agent__collect", id=ids[n])
                if n in order:
                    assert result["output"] == str({"answer": f"answer {n}"})
                else:
                    assert FALLBACK in result["output"]
            assert trio.current_time() == pytest.approx(300, abs=1)
            assert (await boss.call("agent__collect", id=worker))["output"] == "worked"
            assert ticks == 100, "whoever does not ask works on"
    assert [event for event in events if event.kind == "actor.restarted"] == []
    started = [event.actor for event in events if event.kind == "actor.spawned" and event.actor.endswith("/asks")]
    assert len(started) == 8
