"""Models made in Python (`callboard.Model`), under trio and asyncio."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest
import trio
from support.waiting import until

import callboard
from callboard.actors.io.directories import journal_dir
from callboard.chat import ChatReply, ChatRequest, ReasoningDelta, TextDelta, TokenUsage, ToolCallDelta, text_of
from callboard.errors import CallboardError, ModelError, UpstreamError, UsageError
from callboard.events import LlmDelta, LlmRetry
from callboard.supervisors.journal.reading import read_run
from callboard.testing import ScriptedModel, call

ROOT = Path(__file__).parents[3]

Play = Callable[[Callable[[], Coroutine[Any, Any, Any]]], Awaitable[None]]


@pytest.fixture(params=["trio", "asyncio"])
def play(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    """Run a program in the event loop of either library, without keys and configuration."""
    monkeypatch.setenv("CALLBOARD_CONFIG_DIR", str(tmp_path / "config"))

    async def run(main: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        if request.param == "trio":
            await main()
        else:
            await trio.to_thread.run_sync(lambda: asyncio.run(main()))

    return run


CLERK = callboard.Agent(name="clerk", instructions="Answer.")


class Echo:
    """Yields text in two pieces, with tokens."""

    name = "lab:echo"
    settings: ClassVar[Any] = {"input_price": 1.0, "output_price": 2.0}

    def __init__(self) -> None:
        self.requests: list[ChatRequest] = []

    async def request(self, request: ChatRequest) -> AsyncIterator[callboard.ModelPiece]:
        self.requests.append(request)
        yield "You said: "
        yield TextDelta(text_of(request.messages[-1].content))  # type: ignore[union-attr]  # a user's turn
        yield TokenUsage(input_tokens=1_000_000, output_tokens=500_000)


async def test_a_model_of_a_run_streams_and_is_counted(play: Play) -> None:
    async def main() -> None:
        model = Echo()
        async with callboard.Root() as root, root.stream(CLERK, "Hello", model=model) as run:
            pieces = [text async for text in run.text()]
            outcome = await run.outcome()
        assert "".join(pieces) == outcome.final == "You said: Hello"
        assert outcome.usage["lab:echo"].input_tokens == 1_000_000
        assert outcome.usage["lab:echo"].cost == 2.0
        assert model.requests[0].system == "Answer."
        assert model.requests[0].model == "lab:echo"

    await play(main)


async def test_pieces_make_calls_of_tools(play: Play) -> None:
    class Caller:
        name = "lab:caller"

        async def request(self, request: ChatRequest) -> AsyncIterator[callboard.ModelPiece]:
            if len(request.messages) == 1:
                yield ReasoningDelta("hm")
                yield ToolCallDelta(0, id="c1", name="double", arguments='{"n": ')
                yield ToolCallDelta(0, arguments="4}")
            elif len(request.messages) == 3:
                yield call("double", n=8)
            else:
                yield ChatReply(text="16")

    def double(n: int) -> int:
        return 2 * n

    async def main() -> None:
        async with callboard.Root() as root:
            outcome = await root.run(CLERK, "4?", model=Caller(), tools=[double])
        assert (outcome.final, outcome.tool_calls, outcome.turns) == ("16", 2, 3)

    await play(main)


async def test_agents_and_graphs_name_models_of_the_root(play: Play, tmp_path: Path) -> None:
    class Second:
        name = "lab:second"

        async def request(self, request: ChatRequest) -> ChatReply:
            return ChatReply(text=f"second of {len(request.messages)}")

    file = tmp_path / "graph.yaml"
    file.write_text(
        "name: g\nstart: ask\nnodes:\n"
        "  ask: {type: llm, model: 'lab:second', prompt: hi, state_updates: {text: '{{output}}'}, next: end}\n"
        "  end: {type: end, output: '{{text}}'}\n"
    )

    async def main() -> None:
        own = callboard.Agent(name="own", instructions="x", model=Second())
        assert own.model == "lab:second"
        helper = callboard.Agent(name="helper", instructions="x", model=ScriptedModel(["helped"], name="lab:helper"))
        graph = callboard.Graph("h", model=Second())
        graph.node("one", {"type": "llm", "prompt": "x"}, into="text", next="two")
        graph.node("two", helper, prompt="x", into="help", next="end")
        graph.end(output="{{text}}, {{help}}")

        async def ask(ctx: callboard.Context[None]) -> str:
            return (await ctx.run(own, "go")).final

        async with callboard.Root(models=[Echo(), Second()]) as root:
            assert (await root.run(file)).output == "second of 1"
            assert (await root.run(CLERK, "Hi", model="lab:echo")).output == "You said: Hi"
        async with callboard.Root() as root:
            assert (await root.run(own, "Hi")).output == "second of 1"
            assert (await root.run(graph)).output == "second of 1, helped"
            assert (await root.run(file, models=[Second()])).output == "second of 1"
            asking = ScriptedModel([call("ask"), "done"], name="lab:boss")
            asks = callboard.Agent(name="asks", instructions="x", model=asking, tools=[ask])
            outcome = await root.run(asks, "Hi")
            assert asking.results == ["second of 1"]
            assert outcome.usage.keys() == {"lab:boss", "lab:second"}
            spawning = ScriptedModel(
                [
                    call("agent__spawn", agent="own", prompt="go"),
                    lambda _: call("agent__collect", id=json.loads(spawning.results[0])["id"]),
                    "done",
                ],
                name="lab:spawns",
            )
            boss = callboard.Agent(name="boss", instructions="x", agents=[own], model=spawning)
            spawned = await root.run(boss, "Hi")
            assert [child.output for child in spawned.children] == ["second of 1"]
            with pytest.raises(callboard.errors.ConfigError):
                await root.run(file)

    await play(main)


async def test_a_tenant_has_models_of_its_own(play: Play) -> None:
    async def main() -> None:
        first = callboard.Config(name="a", model=ScriptedModel(["a1", "a2"], name="lab:own"))
        other = callboard.Config(name="b", model=ScriptedModel(["b1"], name="lab:own"))
        async with callboard.Root() as root:
            texts = [(await root.run(CLERK, "Hi", config=config)).final for config in (first, other, first)]
            assert texts == ["a1", "b1", "a2"]
            with pytest.raises(callboard.errors.ConfigError):
                await root.run(CLERK, "Hi", model="lab:own", config=callboard.Config(name="c", model=Echo()))

    await play(main)


@pytest.mark.parametrize(
    ("error", "code", "asked"),
    [(UpstreamError("busy"), None, 2), (ModelError("no"), "model", 1), (KeyError("key"), "model", 1)],
)
async def test_errors_are_typed_and_those_that_may_pass_are_tried_again(
    play: Play, error: Exception, code: str | None, asked: int, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing:
        name = "lab:failing"
        count = 0

        async def request(self, request: ChatRequest) -> AsyncIterator[callboard.ModelPiece]:
            self.count += 1
            if self.count == 1:
                raise error
            yield "done"

    events: list[callboard.Event] = []

    async def main() -> None:
        model = Failing()
        async with callboard.Root() as root:
            outcome = await root.run(CLERK, "Hi", model=model, on_event=events.append)
        assert model.count == asked
        assert (None if outcome.error is None else outcome.error.code) == code
        if isinstance(error, KeyError):
            assert outcome.error is not None
            assert "KeyError" in outcome.error.message

    with caplog.at_level(logging.ERROR, "callboard.models"):
        await play(main)
    assert any(isinstance(event.data, LlmRetry) for event in events) == (asked == 2)
    assert bool(caplog.records) == isinstance(error, KeyError)


async def test_cancelling_the_run_closes_the_request(play: Play) -> None:
    ended: list[str] = []

    class Slow:
        name = "lab:slow"

        async def request(self, request: ChatRequest) -> AsyncIterator[callboard.ModelPiece]:
            try:
                yield "begun"
                await (trio.sleep_forever() if trio.lowlevel.in_trio_task() else asyncio.Event().wait())
            finally:
                ended.append("closed")

    async def main() -> None:
        async with callboard.Root() as root, root.stream(CLERK, "Hi", model=Slow()) as run:
            async for _ in run.text():
                break
            run.cancel()
            assert (await run.outcome()).status == "cancelled"
            assert ended == ["closed"]

    await play(main)


KILLED = """
import sys, trio, callboard

class First:
    name = "lab:first"
    async def request(self, request):
        yield "one"

class Second:
    name = "lab:second"
    async def request(self, request):
        print("asked", flush=True)
        await trio.sleep_forever()
        yield ""

async def main():
    async with callboard.Root() as root:
        await root.run(sys.argv[1], "Hi", id="run-7", durable=True, models=[First(), Second()])

trio.run(main)
"""

TWO_MODELS = """\
name: two
start: a
nodes:
  a: {type: llm, model: "lab:first", prompt: "{{initial_prompt}}", state_updates: {first: "{{output}}"}, next: b}
  b: {type: llm, model: "lab:second", prompt: "{{first}}", state_updates: {second: "{{output}}"}, next: done}
  done: {type: end, output: "{{first}} {{second}}"}
"""


async def test_a_killed_run_is_resumed_with_models_made_in_python(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process is killed in its second request; another one brings the models, and asks only the second."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    file = tmp_path / "two.yaml"
    file.write_text(TWO_MODELS)
    env = {**os.environ, "PYTHONPATH": str(ROOT / ".types")}

    def first_reply_is_stored() -> bool:
        past = read_run(journal_dir(os.environ), "run-7")
        return past is not None and any(b"text\xa3one" in row.data for row in past.rows)

    process = subprocess.Popen([sys.executable, "-c", KILLED, file], stdout=subprocess.PIPE, text=True, env=env)
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "asked\n"
        await until(first_reply_is_stored)
        process.kill()
    first, second = Fixed("lab:first", "one"), Fixed("lab:second", "two")

    async def main() -> None:
        async with callboard.Root() as root:
            with pytest.raises(CallboardError, match="lab:"):
                (await root.resume("run-7")).unwrap()
        async with callboard.Root() as root:
            outcome = await root.resume("run-7", models=[first, second])
        assert outcome.unwrap() == "one two"
        assert (first.asked, second.asked) == ([], ["one"])

    await play(main)


class Fixed:
    """Always answers the same."""

    def __init__(self, name: str, text: str) -> None:
        self.name, self.text = name, text
        self.asked: list[str] = []

    async def request(self, request: ChatRequest) -> AsyncIterator[callboard.ModelPiece]:
        self.asked.append(text_of(request.messages[-1].content))  # type: ignore[union-attr]  # a user's turn
        yield self.text


async def test_a_run_is_recorded_and_replayed_with_its_model(play: Play, tmp_path: Path) -> None:
    async def main() -> None:
        file = tmp_path / "run.jsonl"
        async with callboard.Root() as root:
            first = await root.run(CLERK, "Hi", model=Echo(), record=file)
            again = await root.run(CLERK, "Hi", model="lab:echo", replay=file)
        assert first.output == again.output
        assert first.usage == again.usage

    await play(main)


async def test_limits_and_prices_are_those_of_any_model(play: Play) -> None:
    class Unpriced(Echo):
        name = "lab:unpriced"
        settings: ClassVar[Any] = {}

    class Costly:
        name = "lab:costly"

        async def request(self, request: ChatRequest) -> ChatReply:
            return ChatReply(text="done", cost=0.25)

    async def main() -> None:
        async with callboard.Root() as root:
            again = ScriptedModel([call("nothing"), call("nothing")], name="lab:again")
            outcome = await root.run(
                CLERK, "Hi", model="lab:again", models=[again], limits=callboard.Limits(max_turns=1)
            )
            assert outcome.error is not None
            assert outcome.error.code == "max_turns"
            with pytest.raises(callboard.errors.Unpriced):
                await root.run(CLERK, "Hi", model=Unpriced(), limits=callboard.Limits(max_cost=0.5))
            outcome = await root.run(CLERK, "Hi", model=Costly())
            assert outcome.usage["lab:costly"].cost == 0.25

    await play(main)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("echo", {}),
        ("lab:", {}),
        ("lab:a,lab:b", {}),
        (3, {}),
        ("lab:echo", {"prize": 3}),
        ("lab:echo", {"input_price": "x"}),
    ],
)
def test_a_model_is_checked(name: Any, settings: Any) -> None:
    model = Echo()
    model.name, model.settings = name, settings  # type: ignore[misc]  # attributes of the instance
    with pytest.raises(UsageError):
        callboard.Agent(name="own", instructions="x", model=model)
    with pytest.raises(UsageError):
        callboard.run_sync(CLERK, "x", model=model)
    with pytest.raises(UsageError):
        callboard.Config(model=model)


def test_two_models_of_one_name_and_objects_that_are_none_are_refused() -> None:
    with pytest.raises(UsageError):
        callboard.Root(models=[Echo(), Echo()])
    for wrong in (3, [Echo()], Echo):
        with pytest.raises(UsageError):
            callboard.run_sync(CLERK, "x", model=wrong)  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(UsageError):
        callboard.Root(models=[3])  # type: ignore[list-item]  # wrong on purpose


# --- middleware -------------------------------------------------------------------------------------------------------


async def test_middleware_changes_requests_and_replies_in_order(play: Play) -> None:
    order: list[str] = []

    async def hide(request: ChatRequest, call_next: callboard.CallNext) -> ChatReply:
        order.append("hide")
        changed = msgspec.structs.replace(request, system="Hidden.", stream=False)
        reply = await call_next(changed)
        return msgspec.structs.replace(reply, text=reply.text.upper())

    async def pause(request: ChatRequest, call_next: callboard.CallNext) -> ChatReply:
        order.append("pause")
        await (trio.sleep(0) if trio.lowlevel.in_trio_task() else asyncio.sleep(0))
        return await call_next(request)

    async def main() -> None:
        model = Echo()
        events: list[callboard.Event] = []
        async with (
            callboard.Root(middleware=[hide]) as root,
            root.stream(CLERK, "hi", model=model, middleware=[pause], on_event=events.append) as run,
        ):
            assert [text async for text in run.text()] == ["YOU SAID: HI"]
            outcome = await run.outcome()
        assert outcome.final == "YOU SAID: HI"
        assert (order, model.requests[0].system) == (["hide", "pause"], "Hidden.")
        assert [event.data.text for event in events if isinstance(event.data, LlmDelta)] == ["YOU SAID: HI"]

    await play(main)


async def test_middleware_repeats_requests_and_answers_from_a_cache(play: Play) -> None:
    cache: dict[bytes, ChatReply] = {}

    async def cached(request: ChatRequest, call_next: callboard.CallNext) -> ChatReply:
        key = msgspec.json.encode(request.messages)
        if key not in cache:
            cache[key] = await call_next(request)
        return cache[key]

    async def twice(request: ChatRequest, call_next: callboard.CallNext) -> ChatReply:
        await call_next(request)
        return await call_next(request)

    async def main() -> None:
        model = Echo()
        async with callboard.Root() as root:
            first = await root.run(CLERK, "hi", model=model, middleware=[cached])
            again = await root.run(CLERK, "hi", model=model, middleware=[cached])
            assert first.final == again.final == "You said: hi"
            assert len(model.requests) == 1
            assert again.turns == 1
            assert (again.usage["lab:echo"].input_tokens, again.usage["lab:echo"].cost) == (0, 0.0)
            repeated = await root.run(CLERK, "more", model=model, middleware=[twice])
            assert repeated.usage["lab:echo"].input_tokens == 2_000_000
            assert len(model.requests) == 3

    await play(main)


async def test_a_cache_that_always_calls_a_tool_reaches_the_limit(play: Play) -> None:
    async def endless(request: ChatRequest, call_next: callboard.CallNext) -> ChatReply:
        return ChatReply(tool_calls=(call("noop"),), stop="tools")

    def noop() -> str:
        return ""

    async def main() -> None:
        async with callboard.Root() as root:
            outcome = await root.run(
                CLERK, "hi", model=Echo(), tools=[noop], middleware=[endless], limits=callboard.Limits(max_turns=3)
            )
        assert outcome.error is not None
        assert outcome.error.code == "max_turns"
        assert outcome.turns == 3

    await play(main)


async def test_middleware_that_fails_fails_the_run_with_its_name(play: Play) -> None:
    async def broken(request: ChatRequest, call_next: callboard.CallNext) -> ChatReply:
        raise LookupError("nothing")

    async def typed(request: ChatRequest, call_next: callboard.CallNext) -> ChatReply:
        raise UpstreamError("too much")

    async def wrong(request: ChatRequest, call_next: callboard.CallNext) -> ChatReply:
        return "text"  # type: ignore[return-value]  # wrong on purpose

    async def main() -> None:
        async with callboard.Root() as root:
            for middleware, code, text in (
                (broken, "model", "LookupError: nothing"),
                (typed, "upstream", "too much"),
                (wrong, "model", "str"),
            ):
                outcome = await root.run(CLERK, "hi", model=Echo(), middleware=[middleware])
                assert outcome.error is not None
                assert (outcome.error.code, text in outcome.error.message) == (code, True)

    await play(main)


async def test_middleware_of_a_config_is_that_of_the_tenant_alone(play: Play) -> None:
    async def loud(request: ChatRequest, call_next: callboard.CallNext) -> ChatReply:
        reply = await call_next(request)
        return msgspec.structs.replace(reply, text=f"{reply.text}!")

    async def main() -> None:
        tenant = callboard.Config(name="t", model=Echo(), middleware=[loud])
        async with callboard.Root() as root:
            assert (await root.run(CLERK, "hi", config=tenant)).final == "You said: hi!"
            assert (await root.run(CLERK, "hi", model=Echo())).final == "You said: hi"
            scripted = await root.run(CLERK, "hi", model=ScriptedModel(["yes"]), middleware=[loud])
            assert scripted.final == "yes!"

    await play(main)


async def test_cancelling_the_run_cancels_middleware(play: Play) -> None:
    ended: list[str] = []

    async def slow(request: ChatRequest, call_next: callboard.CallNext) -> ChatReply:
        try:
            return await call_next(request)
        finally:
            ended.append("middleware")

    class Slow:
        name = "lab:slow"

        async def request(self, request: ChatRequest) -> AsyncIterator[callboard.ModelPiece]:
            try:
                yield "begun"
                await (trio.sleep_forever() if trio.lowlevel.in_trio_task() else asyncio.Event().wait())
            finally:
                ended.append("model")

    async def main() -> None:
        async with callboard.Root() as root, root.stream(CLERK, "Hi", model=Slow(), middleware=[slow]) as run:
            async for _ in run.text():
                break
            run.cancel()
            assert (await run.outcome()).status == "cancelled"
            assert ended == ["model", "middleware"]

    await play(main)


async def test_what_middleware_returns_is_recorded(play: Play, tmp_path: Path) -> None:
    calls: list[str] = []

    async def loud(request: ChatRequest, call_next: callboard.CallNext) -> ChatReply:
        calls.append("called")
        reply = await call_next(request)
        return msgspec.structs.replace(reply, text=f"{reply.text}!")

    async def main() -> None:
        file = tmp_path / "run.jsonl"
        async with callboard.Root(middleware=[loud]) as root:
            first = await root.run(CLERK, "Hi", model=Echo(), record=file)
            again = await root.run(CLERK, "Hi", model="lab:echo", replay=file)
        assert first.output == again.output == "You said: Hi!"
        assert calls == ["called"]

    await play(main)


@pytest.mark.parametrize("wrong", [3, "text", lambda request, call_next: None, [3]])
def test_middleware_is_a_list_of_callables(wrong: Any) -> None:
    with pytest.raises(UsageError):
        callboard.run_sync(CLERK, "x", model=Echo(), middleware=wrong)
