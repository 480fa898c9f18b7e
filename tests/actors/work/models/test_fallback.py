"""Several models of which one has to answer: which is asked, when, and what is told of it. The server is a real one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any

import msgspec
import pytest
import trio
import trio.testing
from support import gateways
from support.fake_models import FakeModels, Reply, Request
from support.gateways import reaching
from support.messages import says

import callboard
from callboard.actors.work.models.fallback import FailedModels
from callboard.actors.work.models.gateway import Gateway
from callboard.actors.work.spending.accounts import Account
from callboard.protocol.chat import ChatRequest, Delta, ImagePart, Restarted, TextDelta, TokenUsage, Tool, UserTurn
from callboard.protocol.errors import (
    AccountEmpty,
    ConfigError,
    CredentialsError,
    ModelError,
    Unpriced,
    Unsupported,
    UpstreamError,
)
from callboard.protocol.events import (
    EventData,
    LlmFailed,
    LlmFallback,
    LlmRequest,
    LlmResponse,
    LlmRetry,
    LlmWaiting,
    UsageUpdate,
)
from callboard.protocol.requests import Limits
from callboard.protocol.settings import ClientSettings, ModelSettings, Settings

AB = "one:a,two:b"
HELLO = ChatRequest(model=AB, messages=(UserTurn("hello"),))
DOWN = Reply(status=503, error="down for repairs")


class Recorder(gateways.Recorder):
    @property
    def switches(self) -> list[tuple[str, str, bool]]:
        return [(event.model, event.next, event.asked) for event in self.of(LlmFallback)]


@pytest.fixture
def jumping(mock_clock: trio.testing.MockClock, nursery: trio.Nursery) -> Recorder:
    """A recorder under a clock that stands still but for the waits of requests."""

    async def jump(wait: float) -> None:
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(wait)

    return Recorder(lambda wait: nursery.start_soon(jump, wait))


def models(server: FakeModels, **of_each: ModelSettings) -> AbstractAsyncContextManager[Gateway]:
    """A gateway with clients `one`, `two` and `three`, which the server can tell by their models' names."""
    clients = [
        ClientSettings(
            type="openai-compatible",
            name=name,
            api_base=server.openai_base,
            api_key="sk",
            models=(of_each[name],) if name in of_each else (),
        )
        for name in ("one", "two", "three")
    ]
    return reaching(Settings(clients=tuple(clients), fallback_cooldown=30), seed=1)


def by_model(**replies: Reply | str) -> Callable[[Request], Reply | str]:
    return lambda request: replies[request.json["model"]]


def asked(server: FakeModels) -> list[str]:
    return [request.json["model"] for request in server.requests]


# --- which answers


async def test_the_first_answers_if_it_can(fake_model: FakeModels) -> None:
    me = Recorder()
    async with models(fake_model) as gateway:
        assert (await gateway.chat(me, HELLO)).model == "one:a"
    assert (asked(fake_model), me.switches) == (["a"], [])


async def test_the_second_answers_once_the_tries_of_the_first_are_spent(
    fake_model: FakeModels, jumping: Recorder, mock_clock: trio.testing.MockClock
) -> None:
    fake_model.answer_with(by_model(a=DOWN, b="from b"))
    used: list[str] = []

    def count(model: str, tokens: TokenUsage, cost: float | None) -> UsageUpdate | None:
        used.append(model)
        return None

    async with models(fake_model) as gateway:
        reply = await gateway.chat(jumping, HELLO, attempts=3, on_usage=count)
    assert (reply.text, reply.model, used) == ("from b", "two:b", ["two:b"])
    assert asked(fake_model) == ["a", "a", "a", "b"]
    (told,) = jumping.of(LlmFallback)
    assert (told.model, told.next, told.asked) == ("one:a", "two:b", True)
    assert told.error == "one:a: down for repairs (HTTP 503), after 3 tries"
    assert [event.model for event in jumping.of(LlmResponse)] == ["two:b"]
    assert jumping.of(LlmFailed) == []
    assert len(jumping.ids) == 1


@pytest.mark.parametrize(
    "reply",
    [Reply(status=500, error="oops"), Reply("x", drop="at once"), Reply("x", drop="middle"), Reply("")],
    ids=["500", "hangs up", "breaks off", "says nothing"],
)
async def test_what_may_pass_is_what_another_model_is_asked_for(fake_model: FakeModels, reply: Reply) -> None:
    fake_model.answer_with(by_model(a=reply, b="from b"))
    async with models(fake_model) as gateway:
        assert (await gateway.chat(Recorder(), HELLO, attempts=1, need_text=True)).text == "from b"


async def test_an_account_that_is_empty_is_a_reason(fake_model: FakeModels) -> None:
    raw = b'{"error": {"message": "You exceeded your quota", "code": "insufficient_quota"}}'
    fake_model.answer_with(by_model(a=Reply(status=429, raw=raw), b="from b"))
    async with models(fake_model) as gateway:
        assert (await gateway.chat(Recorder(), HELLO)).text == "from b"
        with pytest.raises(AccountEmpty, match="one:a: You exceeded your quota"):
            await gateway.chat(Recorder(), msgspec.structs.replace(HELLO, model="one:a"))


REFUSALS = [
    *((400, "this model's maximum context length is 8192 tokens, you asked for max_tokens 100"),),
    *((400, "prompt is too long: 210000 tokens > 200000 maximum"), (413, "request entity too large")),
    *((400, "Your credit balance is too low"), (402, "payment required"), (400, "invalid schema for function 'x'")),
    *(
        (404, "model 'a' not found"),
        (410, "gone"),
        (422, "no"),
        (400, "'temperature' is not supported with this model"),
    ),
]
"""Lasting refusals of one provider."""


@pytest.mark.parametrize(("status", "error"), REFUSALS)
async def test_a_lasting_refusal_of_one_provider_is_a_reason(fake_model: FakeModels, status: int, error: str) -> None:
    fake_model.answer_with(by_model(a=Reply(status=status, error=error), b="from b"))
    request = msgspec.structs.replace(HELLO, temperature=0.5, max_tokens=100)
    me = Recorder()
    async with models(fake_model) as gateway:
        assert (await gateway.chat(me, request)).text == "from b"
    assert (asked(fake_model), me.switches) == (["a", "b"], [("one:a", "two:b", True)])


async def test_a_refusal_of_one_request_does_not_pass_the_model_over(fake_model: FakeModels) -> None:
    replies = iter([Reply(status=400, error="prompt is too long"), Reply("from b"), Reply("from a")])
    fake_model.answer_with(lambda _: next(replies))
    async with models(fake_model) as gateway:
        assert (await gateway.chat(Recorder(), HELLO)).text == "from b"
        assert (await gateway.chat(Recorder(), HELLO)).text == "from a"


@pytest.mark.parametrize(
    ("status", "error", "kind"),
    [
        (400, "no: temperature must be between 0 and 2", ModelError),
        (422, "no: max_tokens: Input should be greater than 0", ModelError),
        (401, "no", CredentialsError),
        (403, "no", CredentialsError),
    ],
)
async def test_a_mistake_of_the_caller_reaches_no_other_model(
    fake_model: FakeModels, status: int, error: str, kind: type[Exception]
) -> None:
    fake_model.answer_with(by_model(a=Reply(status=status, error=error), b="from b"))
    me = Recorder()
    async with models(fake_model) as gateway:
        with pytest.raises(kind, match="one:a: no"):
            await gateway.chat(me, msgspec.structs.replace(HELLO, temperature=9.0, max_tokens=7))
    assert (asked(fake_model), me.switches) == (["a"], [])
    assert len(me.of(LlmFailed)) == 1


async def test_where_none_answers_the_error_tells_of_all(fake_model: FakeModels) -> None:
    fake_model.answer_with(lambda request: Reply(status=500, error=f"no {request.json['model']}"))
    me = Recorder()
    async with models(fake_model) as gateway:
        with pytest.raises(UpstreamError) as caught:
            await gateway.chat(me, msgspec.structs.replace(HELLO, model="one:a,two:b,three:c"), attempts=1)
    assert str(caught.value) == (
        "three:c: no c (HTTP 500) (asked before: one:a: no a (HTTP 500); two:b: no b (HTTP 500))"
    )
    assert (caught.value.status, caught.value.exit_code) == (500, 6)
    assert me.switches == [("one:a", "two:b", True), ("two:b", "three:c", True)]
    assert [event.model for event in me.of(LlmFailed)] == ["three:c"]


async def test_what_was_said_by_the_first_is_not_mixed_with_what_the_second_says(fake_model: FakeModels) -> None:
    fake_model.answer_with(by_model(a=Reply("half of a long answer", drop="middle"), b="from b"))
    heard: list[Delta] = []
    async with models(fake_model) as gateway:
        reply = await gateway.chat(Recorder(), HELLO, attempts=1, on_delta=heard.append)
    begun = heard.index(Restarted())
    assert begun > 0
    assert all(isinstance(delta, TextDelta) for delta in heard[:begun])
    assert "".join(delta.text for delta in heard[begun + 1 :] if isinstance(delta, TextDelta)) == reply.text == "from b"


# --- limits


async def test_a_long_wait_for_its_turn_is_worth_another_model_and_is_no_failure(
    fake_model: FakeModels, jumping: Recorder, mock_clock: trio.testing.MockClock
) -> None:
    limited = Reply(status=429, error="slow down", headers={"retry-after": "20"})
    fake_model.answer_with(by_model(a=limited, b="from b"))
    async with models(fake_model) as gateway:
        for _ in range(3):
            assert (await gateway.chat(jumping, HELLO)).text == "from b"
        assert asked(fake_model) == ["a", "b", "b", "b"], "the limiter of the first knows"
        fake_model.answer_with(by_model(a="from a", b="from b"))
        mock_clock.jump(20)
        assert (await gateway.chat(jumping, HELLO)).text == "from a"
    assert jumping.of(LlmWaiting) == jumping.of(LlmRetry) == []


async def test_a_short_wait_is_waited(
    fake_model: FakeModels, jumping: Recorder, mock_clock: trio.testing.MockClock
) -> None:
    fake_model.script(Reply(status=429, error="slow down", headers={"retry-after": "2"}))
    fake_model.answer_with(by_model(a="from a", b="from b"))
    async with models(fake_model) as gateway:
        assert (await gateway.chat(jumping, HELLO)).text == "from a"
    assert [event.wait for event in jumping.of(LlmWaiting)] == [pytest.approx(2)]


async def test_refused_by_all_a_request_waits_for_the_one_that_is_free_first(
    fake_model: FakeModels, jumping: Recorder, mock_clock: trio.testing.MockClock
) -> None:
    fake_model.script(
        Reply(status=429, error="slow down", headers={"retry-after": "20"}),
        Reply(status=429, error="slow down", headers={"retry-after": "60"}),
    )
    fake_model.answer_with(by_model(a="from a", b="from b"))
    async with models(fake_model) as gateway:
        assert (await gateway.chat(jumping, HELLO, attempts=1)).text == "from a"
    assert trio.current_time() == pytest.approx(20)
    assert jumping.switches == [("one:a", "two:b", True), ("two:b", "one:a", True)]


async def test_who_may_not_wait_asks_the_next_at_once(fake_model: FakeModels) -> None:
    fake_model.script(Reply(status=429, error="slow down", headers={"retry-after": "2"}))
    async with models(fake_model) as gateway:
        assert (await gateway.chat(Recorder(), HELLO, may_wait=False)).model == "two:b"
        fake_model.script(Reply(status=429, error="slow down", headers={"retry-after": "3"}))
        with pytest.raises(UpstreamError, match=says("work.models.call.busy", model="two:b: slow down …")):
            await gateway.chat(Recorder(), HELLO, may_wait=False)


async def test_a_long_wait_between_tries_is_worth_another_model(fake_model: FakeModels) -> None:
    away = Reply(status=502, error="restarts", headers={"retry-after": "60"})
    fake_model.answer_with(by_model(a=away, b="from b"))
    async with models(fake_model) as gateway:
        with trio.fail_after(60):
            assert (await gateway.chat(Recorder(), HELLO, attempts=3)).text == "from b"
    assert asked(fake_model) == ["a", "b"]


# --- passed over for a while


async def test_a_model_that_failed_is_passed_over_until_one_request_has_tried_it(
    fake_model: FakeModels, mock_clock: trio.testing.MockClock
) -> None:
    fake_model.answer_with(by_model(a=DOWN, b="from b"))
    async with models(fake_model) as gateway:
        await gateway.chat(Recorder(), HELLO, attempts=1)
        mock_clock.jump(10)
        me = Recorder()
        await gateway.chat(me, HELLO, attempts=1)
        assert asked(fake_model) == ["a", "b", "b"]
        (told,) = me.of(LlmFallback)
        assert (told.model, told.next, told.asked) == ("one:a", "two:b", False)
        assert told.error == "failed 10 s ago: one:a: down for repairs (HTTP 503)"

        held = trio.Event()
        fake_model.requests.clear()
        fake_model.answer_with(by_model(a=Reply("from a", hold=held), b="from b"))
        mock_clock.jump(20)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(gateway.chat, Recorder(), HELLO)
            await fake_model.arrived(1)
            assert (await gateway.chat(Recorder(), HELLO)).text == "from b"
            held.set()
        assert asked(fake_model) == ["a", "b"]
        assert (await gateway.chat(Recorder(), HELLO)).text == "from a"


async def test_a_request_that_is_cancelled_while_it_tries_a_model_leaves_that_to_others(
    fake_model: FakeModels, mock_clock: trio.testing.MockClock
) -> None:
    fake_model.answer_with(by_model(a=DOWN, b="from b"))
    async with models(fake_model) as gateway:
        await gateway.chat(Recorder(), HELLO, attempts=1)
        mock_clock.jump(31)
        fake_model.answer_with(by_model(a=Reply("late", hold=trio.Event()), b="from b"))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(gateway.chat, Recorder(), HELLO)
            await fake_model.arrived(3)
            nursery.cancel_scope.cancel()
        fake_model.answer_with(by_model(a="from a", b="from b"))
        assert (await gateway.chat(Recorder(), HELLO)).text == "from a"


async def test_a_model_that_is_passed_over_is_asked_before_the_request_fails(fake_model: FakeModels) -> None:
    fake_model.answer_with(by_model(a=DOWN, b=DOWN))
    async with models(fake_model) as gateway:
        with pytest.raises(UpstreamError):
            await gateway.chat(Recorder(), HELLO, attempts=1)
        fake_model.requests.clear()
        fake_model.answer_with(by_model(a=DOWN, b="from b"))
        assert (await gateway.chat(Recorder(), HELLO, attempts=1)).text == "from b"
    assert asked(fake_model) == ["a", "b"]


async def test_a_model_that_only_said_nothing_is_not_passed_over(fake_model: FakeModels) -> None:
    fake_model.answer_with(by_model(a="", b="from b"))
    async with models(fake_model) as gateway:
        for _ in range(2):
            assert (await gateway.chat(Recorder(), HELLO, attempts=1, need_text=True)).text == "from b"
    assert asked(fake_model) == ["a", "b", "a", "b"]


async def test_a_model_that_is_named_alone_is_asked_though_it_failed(fake_model: FakeModels) -> None:
    fake_model.answer_with(by_model(a=DOWN, b="from b"))
    async with models(fake_model) as gateway:
        await gateway.chat(Recorder(), HELLO, attempts=1)
        fake_model.answer_with(by_model(a="from a"))
        assert (await gateway.chat(Recorder(), msgspec.structs.replace(HELLO, model="one:a"))).text == "from a"


def test_a_provider_that_says_how_long_it_is_away_is_believed_for_an_hour() -> None:
    down = FailedModels(30)
    down.failed("m", UpstreamError("away", retry_after=600), 0.0)
    assert down.why("m", 599.0) == "failed 599 s ago: away"
    assert down.why("m", 600.0) == ""
    down.failed("m", UpstreamError("away", retry_after=1e9), 0.0)
    assert down.until("m") == 3600
    never = FailedModels(0)
    never.failed("m", UpstreamError("away"), 5.0)
    assert never.why("m", 5.0) == ""


# --- what models can't do


async def test_models_that_cannot_take_a_request_are_left_out_for_it(fake_model: FakeModels) -> None:
    one = ModelSettings(name="a", supports_vision=False, supports_function_calling=False)
    picture = msgspec.structs.replace(HELLO, messages=(UserTurn((ImagePart(url="http://x/y.png"),)),))
    tools = msgspec.structs.replace(HELLO, tools=(Tool(name="t"),))
    me = Recorder()
    async with models(fake_model, one=one) as gateway:
        for request in (picture, tools):
            assert (await gateway.chat(me, request)).model == "two:b"
        assert (await gateway.chat(Recorder(), HELLO)).model == "one:a"
    assert me.switches == [("one:a", "two:b", False)] * 2
    assert [event.error for event in me.of(LlmFallback)] == [
        "'one:a' does not accept images (`supports_vision: false`)",
        "'one:a' does not support tools (`supports_function_calling: false`)",
    ]
    assert fake_model.requests[1].offered == ["t"]


async def test_if_none_can_that_is_the_error_or_as_with_one_model(fake_model: FakeModels) -> None:
    blind = [ModelSettings(name=name, supports_vision=False, supports_function_calling=False) for name in "ab"]
    async with models(fake_model, one=blind[0], two=blind[1]) as gateway:
        with pytest.raises(Unsupported, match=says("work.models.catalog.ModelTarget.complete", id="one:a")):
            await gateway.chat(
                Recorder(), msgspec.structs.replace(HELLO, messages=(UserTurn((ImagePart(url="http://x/y.png"),)),))
            )
        assert (await gateway.chat(Recorder(), msgspec.structs.replace(HELLO, tools=(Tool(name="t"),)))).text == "ok"
    assert fake_model.requests[0].offered == []


async def test_window_key_and_price_hold_for_all_of_them(fake_model: FakeModels) -> None:
    one = ModelSettings(name="a", max_input_tokens=128_000, input_price=1, output_price=1)
    two = ModelSettings(name="b", max_input_tokens=8_000)
    async with models(fake_model, one=one, two=two) as gateway:
        assert gateway.window(AB) == 8_000
        assert gateway.window("one:a,three:c") == 128_000
        assert gateway.check("one,two:b") == AB
        money = Account("the run", Limits(max_cost=1.0))
        gateway.check_price("one:a", money)
        with pytest.raises(Unpriced, match=says("protocol.errors.Unpriced.of", model="two:b")):
            gateway.check_price(AB, money)
        gateway.check_price(AB, Account("the run", Limits(max_tokens=1)))
        with pytest.raises(
            CredentialsError, match=says("work.models.catalog.ModelCatalog._vertex_access.2", model="openai:gpt-4o")
        ):
            gateway.check("one:a,openai:gpt-4o")
        with pytest.raises(ConfigError, match=says("work.models.providers.unknown.4", model="opnai:gpt-4o")):
            gateway.check("one:a,opnai:gpt-4o")
        with pytest.raises(ConfigError, match=says("work.models.catalog.ModelCatalog.targets")):
            gateway.check("one:a,")


# --- as users write it


GRAPH = """
name: g
model: [one:a, two:b]
start: say
nodes:
  say: {type: llm, prompt: hi, state_updates: {said: "{{output}}"}, next: end}
  end: {type: end, output: "{{said}}"}
"""


async def test_a_graph_falls_back_and_the_outcome_names_who_answered(fake_model: FakeModels, tmp_path: Any) -> None:
    fake_model.answer_with(by_model(a=DOWN, b="from b"))
    clients = "".join(
        f"  - {{type: openai-compatible, name: {name}, api_base: '{fake_model.openai_base}', api_key: sk}}\n"
        for name in ("one", "two")
    )
    (tmp_path / "config.yaml").write_text(f"clients:\n{clients}")
    place = tmp_path / "agents" / "g"
    place.mkdir(parents=True)
    (place / "graph.yaml").write_text(GRAPH)
    heard: list[EventData] = []
    outcome = await callboard.run("g", "hi", config_dir=tmp_path, on_event=lambda event: heard.append(event.data))
    assert (outcome.output, list(outcome.usage)) == ("from b", ["two:b"])
    assert [type(event) for event in heard if isinstance(event, LlmRequest | LlmFallback)] == [
        LlmRequest,
        LlmFallback,
        LlmRequest,
    ]


async def test_an_agent_takes_a_list_from_its_caller(fake_model: FakeModels, tmp_path: Any) -> None:
    fake_model.answer_with(by_model(a="from a", b=DOWN))
    clients = "".join(
        f"  - {{type: openai-compatible, name: {name}, api_base: '{fake_model.openai_base}', api_key: sk}}\n"
        for name in ("one", "two")
    )
    (tmp_path / "config.yaml").write_text(f"model: [one:a, two:b]\nclients:\n{clients}")
    agent = callboard.Agent(name="x", instructions="Help.", can_ask_user=False)
    assert list((await callboard.run(agent, "hi", config_dir=tmp_path)).usage) == ["one:a"]
    outcome = await callboard.run(agent, "hi", config_dir=tmp_path, model="two:b,one:a")
    assert (outcome.output, list(outcome.usage)) == ("from a", ["one:a"])


async def test_of_a_hundred_requests_at_once_one_tries_a_model_that_was_down(
    fake_model: FakeModels, mock_clock: trio.testing.MockClock
) -> None:
    fake_model.answer_with(by_model(a=DOWN, b="from b"))
    async with models(fake_model) as gateway:
        await gateway.chat(Recorder(), HELLO, attempts=1)
        for passed, tries in ((10, 0), (21, 1)):
            mock_clock.jump(passed)
            fake_model.requests.clear()
            async with trio.open_nursery() as nursery:
                for _ in range(100):
                    nursery.start_soon(partial(gateway.chat, Recorder(), HELLO, attempts=1))
            assert asked(fake_model).count("a") == tries
            assert asked(fake_model).count("b") == 100
