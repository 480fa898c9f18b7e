"""`ScriptedModel`, `FunctionModel` and `Calls` of `callboard.testing`, in trio and asyncio, without configuration."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trio

import callboard
from callboard.actors.runs.root import in_asyncio
from callboard.protocol.chat import ChatReply, ChatRequest
from callboard.protocol.errors import UpstreamError
from callboard.protocol.requests import Limits
from callboard.testing import Calls, FunctionModel, ScriptedModel, call

CLERK = callboard.Agent(name="clerk", instructions="Look it up.")

Play = Callable[[Callable[[], Coroutine[Any, Any, Any]]], Awaitable[None]]


@pytest.fixture(params=["trio", "asyncio"])
def play(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    """Runs a program in the event loop of either library, without keys and configuration."""
    monkeypatch.setenv("CALLBOARD_CONFIG_DIR", str(tmp_path / "config"))

    async def run(main: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        if request.param == "trio":
            await main()
        else:
            await trio.to_thread.run_sync(lambda: asyncio.run(main()))

    return run


def look_up(key: str) -> int:
    """Looks a number up."""
    return {"a": 7}[key]


async def test_a_scripted_model_calls_tools_and_answers(play: Play) -> None:
    async def main() -> None:
        calls = Calls()
        model = ScriptedModel([["Let me see.", call("look_up", key="a")], "It is 7."])
        async with callboard.Root() as root:
            outcome = await root.run(CLERK, "What is a?", tools=[look_up], model=model, on_event=calls)
        assert outcome.output == "Let me see.\nIt is 7."
        assert outcome.final == "It is 7."
        assert outcome.turns == 2
        assert outcome.usage["test:scripted"].input_tokens > 0
        assert model.prompts == ["What is a?", "What is a?"]
        assert model.results == ["7"]
        model.assert_done()
        assert calls.assert_called("look_up", key="a", times=1).result == "7"
        calls.assert_not_called("pay")
        assert calls.names == ["look_up"]

    await play(main)


async def test_a_function_model_sees_requests_and_may_be_async(play: Play) -> None:
    async def main() -> None:
        async def answer(request: ChatRequest) -> Any:
            if in_asyncio():
                await asyncio.sleep(0)
            else:
                await trio.lowlevel.checkpoint()
            return [call("look_up", key="b")] if len(request.messages) == 1 else f"{request.messages[-1].content!r}"

        calls = Calls()
        async with callboard.Root() as root:
            outcome = await root.run(CLERK, "b?", tools=[look_up], model=FunctionModel(answer), on_event=calls)
        assert "KeyError" in outcome.final
        assert calls.all[0].error == "KeyError: 'b'"

    await play(main)


async def test_a_typed_result_is_what_a_model_is_given(play: Play) -> None:
    @dataclass
    class Point:
        x: int

    async def main() -> None:
        async with callboard.Root() as root:
            model = ScriptedModel(["no JSON", Point(3)])
            outcome = await root.run(CLERK, "where?", result=Point, model=model)
        assert outcome.unwrap() == Point(3)
        assert model.requests[0].response_schema is not None

    await play(main)


async def test_a_model_answers_everywhere_in_a_block(play: Play) -> None:
    async def main() -> None:
        worker = callboard.Agent(name="worker", model="openai:gpt-none", instructions="Work.")

        async def ask(ctx: callboard.Context[None]) -> str:
            return (await ctx.run(worker, "go")).final

        model = FunctionModel(
            lambda request: (
                "worked"
                if request.system != CLERK.instructions
                else model.results[-1]
                if model.results
                else call("ask")
            )
        )
        async with callboard.Root() as root:
            with model.everywhere():
                outcome = await root.run(CLERK, "go", tools=[ask])
                graph = callboard.Graph("g")
                graph.node("n", {"type": "llm", "prompt": "x"}, into="text", next="end")
                graph.end(output="{{text}}")
                assert (await root.run(graph)).output == "worked"
        assert outcome.final == "worked"
        assert outcome.usage.keys() == {"test:function", "openai:gpt-none"}

    await play(main)


async def test_a_script_that_is_too_short_fails_the_run(play: Play) -> None:
    async def main() -> None:
        model = ScriptedModel([call("look_up", key="a")])
        async with callboard.Root() as root:
            outcome = await root.run(CLERK, "a?", tools=[look_up], model=model)
        assert outcome.status == "failed"
        assert outcome.error is not None
        assert outcome.error.code == "model"

    await play(main)


async def test_a_script_that_is_too_long_is_told(play: Play) -> None:
    async def main() -> None:
        model = ScriptedModel(["one", "two"])
        async with callboard.Root() as root:
            await root.run(CLERK, "a?", model=model)
        assert model.remaining == ["two"]
        with pytest.raises(AssertionError):
            model.assert_done()

    await play(main)


async def test_limits_and_streams_are_those_of_any_run(play: Play) -> None:
    async def main() -> None:
        async with callboard.Root() as root:
            model = ScriptedModel([call("look_up", key="a"), "late"])
            outcome = await root.run(CLERK, "a?", tools=[look_up], model=model, limits=Limits(max_turns=1))
            assert outcome.error is not None
            assert outcome.error.code == "max_turns"
            async with root.stream(CLERK, "a?", model=ScriptedModel(["hello"])) as run:
                assert [text async for text in run.text()] == ["hello"]

    await play(main)


@pytest.mark.parametrize(
    ("said", "code"), [(UpstreamError("busy"), "upstream"), (ValueError("odd"), "model"), (ChatReply(), "empty_reply")]
)
async def test_a_request_may_fail(play: Play, said: Any, code: str) -> None:
    async def main() -> None:
        async with callboard.Root() as root:
            outcome = await root.run(CLERK, "a?", model=ScriptedModel([said]))
        assert outcome.error is not None
        assert outcome.error.code == code

    await play(main)


async def test_a_run_with_a_stand_in_is_recorded_and_played(play: Play, tmp_path: Path) -> None:
    async def main() -> None:
        file = tmp_path / "run.jsonl"
        async with callboard.Root() as root:
            model = ScriptedModel([call("look_up", key="a"), "7"])
            first = await root.run(CLERK, "a?", tools=[look_up], model=model, record=file)
            again = await root.run(CLERK, "a?", tools=[look_up], replay=file)
        assert first.output == again.output == "7"
        assert first.usage == again.usage

    await play(main)


def test_assertions_list_the_calls_there_were() -> None:
    calls = Calls()
    with pytest.raises(AssertionError) as caught:
        calls.assert_called("look_up", key="a")
    assert "none" in str(caught.value)
