"""The tools that ask the user."""

from __future__ import annotations

from typing import Any

import pytest
import trio.testing
from support.messages import fragment, has_message
from support.tool_families import Parent, Person, parent
from trio.testing import wait_all_tasks_blocked

from callboard.actors.work.agent.tool_families import user_tools
from callboard.protocol.kernel.questions import Answer, Question
from callboard.supervisors import Actor, Root

FALLBACK = "Make your best judgment and proceed"


async def answered(
    root: Root, boss: Parent, value: str | list[str], tool: str, **arguments: Any
) -> tuple[Any, Question]:
    """What the model reads when a person gives this answer, and what the person was shown."""
    person = Person()
    results: list[Any] = []

    async def asks() -> None:
        results.append(await boss.call(tool, **arguments))

    with root.questions.attach(person):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(asks)
            await wait_all_tasks_blocked()
            assert root.questions.answer(person.shown[0].id, value, "terminal")
    return results[0], person.shown[0]


async def test_each_tool_asks_its_kind_of_question_and_returns_the_answer() -> None:
    async with Root() as root, parent(root, {}) as boss:
        result, shown = await answered(root, boss, "b", "user__ask", question="Which?", options=["a", "b"])
        assert result == {"answer": "b"}
        assert (shown.kind, shown.text, shown.options, shown.free) == ("choice", "Which?", ("a", "b"), True)

        result, shown = await answered(root, boss, "no", "user__confirm", question="Sure?")
        assert result == {"answer": "no"}
        assert (shown.kind, shown.default) == ("confirm", None)

        result, shown = await answered(root, boss, "", "user__input", question="Name?")
        assert result == {"answer": ""}
        assert shown.kind == "text"

        result, shown = await answered(root, boss, ["b"], "user__checkbox", question="Which?", options=["a", "b"])
        assert result == {"answers": ["b"]}
        assert (shown.kind, shown.options, shown.free) == ("checkbox", ("a", "b"), False)
        assert shown.actor == "/boss/user__checkbox"


async def test_a_text_of_the_users_own_is_an_answer_to_user_ask() -> None:
    async with Root() as root, parent(root, {}) as boss:
        result, _ = await answered(root, boss, "neither", "user__ask", question="Which?", options=["a", "b"])
        assert result == {"answer": "neither"}


@pytest.mark.parametrize(("said", "answer"), [("Yes", "yes"), ("y", "yes"), ("N", "no"), ("maybe", "maybe")])
async def test_confirm_returns_yes_or_no_however_it_was_said(said: str, answer: str) -> None:
    async with Root() as root, parent(root, {}) as boss:
        result, _ = await answered(root, boss, said, "user__confirm", question="Sure?")
        assert result == {"answer": answer}


async def test_options_may_be_the_json_text_of_a_list() -> None:
    async with Root() as root, parent(root, {}) as boss:
        _, shown = await answered(root, boss, "1", "user__ask", question="?", options='["1", 2, "1"]')
        assert shown.options == ("1", "2")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ("[1,", fragment("work.agent.tool_families.read_texts", name="options")),
        ("a or b", "'options' must be a list of texts"),
        ([], "'options' is empty: list the options"),
    ],
)
async def test_options_that_are_no_list_are_told(options: Any, problem: str) -> None:
    async with Root() as root, parent(root, {}) as boss:
        result = await boss.call("user__ask", question="?", options=options)
        assert result["tool_call_error"].startswith(problem)


@pytest.mark.parametrize("tool", ["user__ask", "user__confirm", "user__input", "user__checkbox"])
async def test_with_nobody_there_the_model_is_told_to_go_on(tool: str) -> None:
    """Also `user__confirm`, whose default is yes: nobody has said that."""
    options = {"options": ["a", "b"]} if tool in ("user__ask", "user__checkbox") else {}
    async with Root() as root, parent(root, {}) as boss:
        result = await boss.call(tool, question="Delete it all?", **options)
        assert has_message(result["error"], "work.agent.tool_families._ask.2")
        assert result["fallback"] == FALLBACK


async def test_case_87_silence_gives_the_documented_fallback(autojump_clock: trio.testing.MockClock) -> None:
    async def asks(me: Actor) -> Any:
        tool = next(tool for tool in user_tools(timeout=300) if tool.name == "user__input")
        return await tool.run(me, {"question": "Anyone?"})

    async with Root() as root:
        with root.questions.attach(Person()):
            assert await root.spawn(asks).result() == {
                "error": "Escalation timed out after 300 seconds waiting for user response",
                "fallback": FALLBACK,
            }
    assert trio.current_time() == pytest.approx(300)


async def test_prepared_answers_count_as_answers() -> None:
    async with Root() as root, parent(root, {}) as boss:
        boss.me.policy = lambda question: Answer(question=question.id, value="no", by="answers")
        assert await boss.call("user__confirm", question="Sure?") == {"answer": "no"}


async def test_where_too_many_questions_are_open_the_model_is_told_so() -> None:
    async with Root(patient=True) as root, parent(root, {}) as boss:
        root.questions.most = 0
        result = await boss.call("user__confirm", question="Delete it all?")
        assert has_message(result["error"], "supervisors.escalation.OpenQuestions._opened.2", _open=0)
