"""The gateway: tries, waits, limits, deadlines, events, money; and that nobody is left behind."""

from __future__ import annotations

import gzip
import math
from contextlib import AbstractAsyncContextManager
from typing import Any

import httpx
import msgspec
import pytest
import trio
import trio.testing
from support.fake_models import FakeModels, Reply
from support.gateways import Recorder, reaching
from support.messages import says

from callboard.actors.io.http.headers import retry_after
from callboard.actors.work.models import client as client_module
from callboard.actors.work.models.gateway import REFUSED_FOR, Gateway
from callboard.protocol.chat import ChatRequest, Restarted, TextDelta, TokenUsage, Tool, UserTurn
from callboard.protocol.errors import (
    BudgetReached,
    ConfigError,
    CredentialsError,
    EmptyReply,
    KeyRefused,
    ModelError,
    ReplyFiltered,
    TimedOut,
    UpstreamError,
)
from callboard.protocol.events import LlmDelta, LlmRequest, LlmResponse, LlmRetry, LlmWaiting, UsageUpdate
from callboard.protocol.settings import ClientSettings, ModelSettings, Settings

HELLO = ChatRequest(messages=(UserTurn("hello"),))


def gateway(
    server: FakeModels, *, model: ModelSettings | None = None, **fields: Any
) -> AbstractAsyncContextManager[Gateway]:
    client = ClientSettings(
        type="openai-compatible",
        name="fake",
        api_base=server.openai_base,
        api_key="sk-test",
        models=(model,) if model else (),
    )
    return reaching(Settings(model="fake:model", clients=(client,), **fields), seed=1)


@pytest.fixture
def jumping(mock_clock: trio.testing.MockClock, nursery: trio.Nursery) -> Recorder:
    """A recorder under a clock that stands still but for the waits between tries."""

    async def jump(wait: float) -> None:
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(wait)

    return Recorder(lambda wait: nursery.start_soon(jump, wait))


# --- tries ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 529])
async def test_a_passing_error_is_tried_again(
    fake_model: FakeModels, jumping: Recorder, mock_clock: trio.testing.MockClock, status: int
) -> None:
    """D7 case 72."""
    fake_model.script(Reply(status=status, error="slow down"), "fine")
    async with gateway(fake_model) as models:
        reply = await models.chat(jumping, HELLO, attempts=2)
    assert reply.text == "fine"
    assert len(fake_model.requests) == 2


@pytest.mark.parametrize("drop", ["at once", "headers", "middle"])
async def test_a_broken_connection_is_tried_again(
    fake_model: FakeModels, jumping: Recorder, mock_clock: trio.testing.MockClock, drop: Any
) -> None:
    fake_model.script(Reply("never seen", drop=drop), "fine")
    async with gateway(fake_model) as models:
        assert (await models.chat(jumping, HELLO)).text == "fine"


@pytest.mark.parametrize("attempts", [1, 2, 5])
async def test_the_number_of_tries_is_exact(
    fake_model: FakeModels, jumping: Recorder, mock_clock: trio.testing.MockClock, attempts: int
) -> None:
    fake_model.answer_with(lambda request: Reply(status=503, error="down for repairs"))
    async with gateway(fake_model) as models:
        with pytest.raises(UpstreamError, match=r"fake:model: down for repairs \(HTTP 503\)") as caught:
            await models.chat(jumping, HELLO, attempts=attempts)
    assert caught.value.exit_code == 6
    assert caught.value.status == 503
    assert len(fake_model.requests) == attempts
    assert len(jumping.of(LlmRetry)) == attempts - 1


@pytest.mark.parametrize(
    ("status", "kind", "words"),
    [
        (400, ModelError, "bad request"),
        (404, ModelError, "bad request"),
        (422, ModelError, "bad request"),
        (401, KeyRefused, "check the API key"),
        (403, KeyRefused, "check the API key"),
        (302, ModelError, says("work.models.client.refused.5")),
    ],
)
async def test_an_error_that_stays_is_not_tried_again(
    fake_model: FakeModels, status: int, kind: Any, words: str
) -> None:
    """D7 case 72."""
    fake_model.answer_with(lambda request: Reply(status=status, error="bad request"))
    async with gateway(fake_model) as models:
        with pytest.raises(kind, match=words) as caught:
            await models.chat(Recorder(), HELLO)
    assert type(caught.value) is kind
    assert len(fake_model.requests) == 1


async def test_an_empty_account_is_not_waited_for(fake_model: FakeModels) -> None:
    raw = b'{"error": {"message": "You exceeded your quota", "code": "insufficient_quota"}}'
    fake_model.script(Reply(status=429, raw=raw))
    async with gateway(fake_model) as models:
        with pytest.raises(CredentialsError, match="You exceeded your quota"):
            await models.chat(Recorder(), HELLO)


async def test_nobody_listening_is_a_passing_error() -> None:
    client = ClientSettings(type="openai-compatible", name="gone", api_base="http://127.0.0.1:1/v1")
    async with reaching(Settings(clients=(client,))) as models:
        with pytest.raises(
            UpstreamError,
            match=says("io.http.transport.Connections._connected", port="…127.0.0.1:1", error="Connection refused"),
        ):
            await models.chat(Recorder(), ChatRequest(model="gone:m", messages=HELLO.messages), attempts=1)


async def test_what_the_provider_asks_for_is_waited_and_is_no_failed_try(
    fake_model: FakeModels, jumping: Recorder, mock_clock: trio.testing.MockClock
) -> None:
    fake_model.script(Reply(status=429, error="busy", headers={"retry-after": "7"}), "fine")
    async with gateway(fake_model) as models:
        await models.chat(jumping, HELLO, attempts=1)
    (waiting,) = jumping.of(LlmWaiting)
    assert (waiting.wait, waiting.reason) == (pytest.approx(7), "refused")
    assert "busy (HTTP 429)" in waiting.error
    assert jumping.of(LlmRetry) == []
    assert trio.current_time() == pytest.approx(7)


async def test_a_provider_that_asks_for_an_hour_is_waited_for_as_long_as_the_caller_has_time(
    fake_model: FakeModels, jumping: Recorder, mock_clock: trio.testing.MockClock
) -> None:
    fake_model.script(Reply(status=429, error="busy", headers={"retry-after": "3600"}))
    async with gateway(fake_model) as models:
        with pytest.raises(TimedOut):
            await models.chat(jumping, HELLO, deadline=trio.current_time() + 60)
    assert [waiting.wait for waiting in jumping.of(LlmWaiting)] == [pytest.approx(3600)]


@pytest.mark.parametrize("headers", [{}, {"retry-after": "1"}])
async def test_a_provider_that_refuses_for_ever_is_a_failed_try(
    fake_model: FakeModels, jumping: Recorder, mock_clock: trio.testing.MockClock, headers: dict[str, str]
) -> None:
    fake_model.answer_with(lambda _: Reply(status=429, error="busy", headers=headers))
    async with gateway(fake_model) as models:
        with pytest.raises(UpstreamError, match="busy") as caught:
            await models.chat(jumping, HELLO, attempts=2)
    assert caught.value.exit_code == 6
    assert len(jumping.of(LlmRetry)) == 1
    assert 2 * REFUSED_FOR <= trio.current_time() <= 2 * (REFUSED_FOR + 65)


async def test_who_may_not_wait_is_told_at_once(fake_model: FakeModels) -> None:
    fake_model.script(Reply(status=429, error="busy", headers={"retry-after": "3600"}))
    async with gateway(fake_model) as models:
        for _ in range(2):  # the second one is not even sent
            with pytest.raises(UpstreamError, match=r"busy|the rate limit of the provider is reached") as caught:
                await models.chat(Recorder(), HELLO, may_wait=False)
            assert caught.value.exit_code == 6
            assert caught.value.retry_after == pytest.approx(3600, abs=5)
    assert len(fake_model.requests) == 1


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "2.5"}, 2.5),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after": "Thu, 01 Jan 1970 00:01:40 GMT"}, 90.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:00 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-5"}, 0.0),
        ({"retry-after": "nan"}, 0.0),
        ({"retry-after": "9" * 400}, math.inf),
        ({"retry-after": "Mon, 01 Jan 99999 00:00:00 GMT"}, None),
    ],
)
def test_retry_after_is_seconds_milliseconds_or_a_date(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(httpx.Headers(headers), now=10.0) == seconds


# --- streams ----------------------------------------------------------------------------------------------


async def test_a_stream_that_breaks_is_begun_anew_and_the_listener_is_told(
    fake_model: FakeModels, jumping: Recorder, mock_clock: trio.testing.MockClock
) -> None:
    fake_model.script(Reply("a wrong beginning", drop="middle"), "right")
    deltas: list[Any] = []
    async with gateway(fake_model) as models:
        reply = await models.chat(jumping, HELLO, on_delta=deltas.append)
    assert reply.text == "right"
    again = deltas.index(Restarted())
    assert "a wrong beginning".startswith("".join(delta.text for delta in deltas[:again]))
    assert again > 0
    assert deltas[again + 1 :] == [TextDelta("right")]


async def test_a_model_that_cannot_stream_gives_its_text_in_one_piece(fake_model: FakeModels) -> None:
    fake_model.script("all at once")
    deltas: list[Any] = []
    async with gateway(fake_model, model=ModelSettings(name="model", no_stream=True)) as models:
        await models.chat(Recorder(), HELLO, on_delta=deltas.append)
    assert deltas == [TextDelta("all at once")]
    assert "stream" not in fake_model.requests[0].json


@pytest.mark.parametrize(("wanted", "setting", "sent"), [(None, True, True), (None, False, False), (True, False, True)])
async def test_a_stream_is_asked_for_if_somebody_listens_and_the_settings_allow(
    fake_model: FakeModels, wanted: bool | None, setting: bool, sent: bool
) -> None:
    request = ChatRequest(messages=HELLO.messages, stream=wanted)
    async with gateway(fake_model, stream=setting) as models:
        await models.chat(Recorder(), request, on_delta=lambda delta: None)
    assert fake_model.requests[0].json.get("stream", False) is sent


async def test_a_compressed_answer_is_understood_though_none_was_asked_for(fake_model: FakeModels) -> None:
    whole = b'{"choices": [{"message": {"content": "packed"}, "finish_reason": "stop"}]}'
    fake_model.script(Reply(raw=gzip.compress(whole), headers={"content-encoding": "gzip"}))
    async with gateway(fake_model) as models:
        assert (await models.chat(Recorder(), HELLO)).text == "packed"
    assert fake_model.requests[0].headers["accept-encoding"] == "identity"


async def test_an_answer_without_end_is_refused(fake_model: FakeModels, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "MAX_REPLY", 1000)
    fake_model.script("x" * 2000)
    async with gateway(fake_model) as models:
        with pytest.raises(ModelError, match=says("work.models.client._too_long")):
            await models.chat(Recorder(), HELLO)
    await fake_model.until(lambda server: server.open == 0)


async def test_a_small_answer_that_unpacks_to_gigabytes_is_refused_at_the_limit(fake_model: FakeModels) -> None:
    """Unpacked a little at a time, so that the limit holds before the memory is gone."""
    bomb = gzip.compress(b"0" * (client_module.MAX_REPLY + 1))
    assert len(bomb) < 100_000
    fake_model.script(Reply(raw=bomb, headers={"content-encoding": "gzip"}))
    async with gateway(fake_model) as models:
        with pytest.raises(ModelError, match=says("work.models.client._too_long", MAX_REPLY=64)):
            await models.chat(Recorder(), HELLO)


async def test_a_compressed_answer_that_ends_and_goes_on_is_refused(
    fake_model: FakeModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "MAX_REPLY", 1000)
    fake_model.script(Reply(raw=gzip.compress(b"{}") + b"x" * 2000, headers={"content-encoding": "gzip"}))
    async with gateway(fake_model) as models:
        with pytest.raises(ModelError, match=says("work.models.client._too_long")):
            await models.chat(Recorder(), HELLO)


@pytest.mark.parametrize("body", [b'{"choices": [{"message": {"content": 1}}]}', b'{"x": ' + b"[" * 100_000])
async def test_an_answer_that_no_json_reader_can_take_is_the_providers_fault(
    fake_model: FakeModels, body: bytes
) -> None:
    fake_model.script(Reply(raw=body))
    async with gateway(fake_model) as models:
        with pytest.raises(ModelError, match=says("work.models.codec.read")):
            await models.chat(Recorder(), HELLO)


@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"error": {"message": "' + b"E" * 100_000 + b'"}}', b"E" * 100_000])
async def test_a_provider_s_explanation_is_cut_to_a_readable_length(fake_model: FakeModels, body: bytes) -> None:
    fake_model.script(Reply(status=400, raw=body))
    async with gateway(fake_model) as models:
        with pytest.raises(ModelError, match="HTTP 400") as caught:
            await models.chat(Recorder(), HELLO)
    assert len(str(caught.value)) < 600


async def test_tool_calls_that_nobody_offered_are_no_output(fake_model: FakeModels) -> None:
    fake_model.script(Reply(calls=[("format_disk", {})]))
    async with gateway(fake_model) as models:
        with pytest.raises(UpstreamError, match=says("work.models.call.GatewayCall.ends", named="'format_disk'")):
            await models.chat(Recorder(), HELLO, attempts=1, need_text=True)


async def test_an_empty_reply_is_asked_for_once_more(fake_model: FakeModels) -> None:
    async with gateway(fake_model) as models:
        fake_model.script("", "at last")
        assert (await models.chat(Recorder(), HELLO)).text == "at last"
        fake_model.script("", " ", "one too many")
        with pytest.raises(EmptyReply):
            await models.chat(Recorder(), HELLO)
        assert fake_model.unused == 1


@pytest.mark.parametrize(("stop", "error"), [("content_filter", ReplyFiltered), ("length", EmptyReply)])
async def test_an_empty_reply_that_would_come_again_is_not_asked_for_once_more(
    fake_model: FakeModels, stop: str, error: type[ModelError]
) -> None:
    fake_model.script(Reply(stop=stop), "one too many")
    async with gateway(fake_model) as models:
        with pytest.raises(error, match=stop):
            await models.chat(Recorder(), HELLO, on_delta=lambda delta: None)
    assert fake_model.unused == 1


async def test_no_reply_gives_tokens_back(fake_model: FakeModels) -> None:
    """Else a provider could lift a run's budget."""
    fake_model.script(Reply("hi", input_tokens=-500, output_tokens=10**30))
    async with gateway(fake_model) as models:
        usage = (await models.chat(Recorder(), HELLO)).usage
    assert (usage.input_tokens, usage.output_tokens) == (0, 10**12)


# --- time -------------------------------------------------------------------------------------------------


async def test_a_deadline_cuts_a_try_short(fake_model: FakeModels, mock_clock: trio.testing.MockClock) -> None:
    fake_model.script(Reply("too late", hold=trio.Event()))
    async with gateway(fake_model) as models, trio.open_nursery() as nursery:

        @nursery.start_soon
        async def later() -> None:
            await fake_model.arrived(1)
            mock_clock.jump(10)

        with pytest.raises(TimedOut, match=says("work.models.gateway.Gateway.chat.2", id="fake:model")):
            await models.chat(Recorder(), HELLO, deadline=trio.current_time() + 10)
    await fake_model.until(lambda server: server.open == 0)


async def test_no_wait_is_begun_that_the_deadline_would_cut(fake_model: FakeModels) -> None:
    fake_model.script(Reply(status=503, error="down", headers={"retry-after": "20"}))
    async with gateway(fake_model) as models:
        with pytest.raises(UpstreamError, match="down"):
            await models.chat(Recorder(), HELLO, deadline=trio.current_time() + 10)


@pytest.mark.parametrize("stream", [False, True])
async def test_cancelling_hangs_up(fake_model: FakeModels, stream: bool) -> None:
    fake_model.script(Reply("never", hold=trio.Event()))
    request = ChatRequest(messages=HELLO.messages, stream=stream)
    async with gateway(fake_model) as models:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(models.chat, Recorder(), request)
            await fake_model.arrived(1)
            nursery.cancel_scope.cancel()
        await fake_model.until(lambda server: server.open == 0)
    assert fake_model.cut == 1


async def test_cancelling_in_the_middle_of_a_stream_hangs_up(fake_model: FakeModels) -> None:
    fake_model.script(Reply("word " * 1000, gap=0.001))
    async with gateway(fake_model) as models:
        with trio.CancelScope() as scope:
            await models.chat(Recorder(), HELLO, on_delta=lambda delta: scope.cancel())
        await fake_model.until(lambda server: server.open == 0)


async def test_a_model_has_as_many_requests_under_way_as_it_may(fake_model: FakeModels) -> None:
    under_way = most = 0
    gate = trio.Event()

    def answer(request: Any) -> Reply:
        nonlocal under_way, most
        under_way = len(fake_model.requests) - len(answered)
        most = max(most, under_way)
        return Reply("ok", hold=gate)

    answered: list[str] = []
    fake_model.answer_with(answer)

    async def one(models: Gateway) -> None:
        await models.chat(Recorder(), HELLO)
        answered.append("x")

    limited = ModelSettings(name="model", max_concurrency=3)
    async with gateway(fake_model, model=limited) as models, trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(one, models)
        await fake_model.arrived(3)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert len(fake_model.requests) == 3
        gate.set()
    assert len(answered) == 10
    assert most <= 3


async def test_a_wait_between_tries_keeps_no_place(fake_model: FakeModels, mock_clock: trio.testing.MockClock) -> None:
    fake_model.script(Reply(status=503, error="down", headers={"retry-after": "60"}), "second", "first")
    waiting = trio.Event()
    texts: list[str] = []

    async def first(models: Gateway) -> None:
        texts.append((await models.chat(Recorder(lambda wait: waiting.set()), HELLO)).text)

    limited = ModelSettings(name="model", max_concurrency=1)
    async with gateway(fake_model, model=limited) as models, trio.open_nursery() as nursery:
        nursery.start_soon(first, models)
        await waiting.wait()
        texts.append((await models.chat(Recorder(), HELLO)).text)
        mock_clock.jump(61)
    assert texts == ["second", "first"]


# --- what is told -----------------------------------------------------------------------------------------


async def test_events_tell_the_whole_call_under_one_id(
    fake_model: FakeModels, jumping: Recorder, mock_clock: trio.testing.MockClock
) -> None:
    fake_model.script(Reply(status=503, error="down"), Reply("hello you", input_tokens=7, output_tokens=3))
    request = ChatRequest(system="Be kind.", messages=HELLO.messages, tools=(Tool(name="add"),))
    async with gateway(fake_model) as models:
        await models.chat(jumping, request, on_delta=lambda delta: None)
    first, retry, second, *deltas, response = jumping.events
    server = fake_model.url.removeprefix("http://")
    assert first == LlmRequest(model="fake:model", messages=2, tools=["add"], attempt=1, stream=True, server=server)
    assert isinstance(retry, LlmRetry)
    assert "down" in retry.error
    assert second == msgspec.structs.replace(first, attempt=2)
    assert "".join(delta.text for delta in deltas if isinstance(delta, LlmDelta)) == "hello you"
    assert isinstance(response, LlmResponse)
    assert (response.input_tokens, response.output_tokens, response.stop) == (7, 3, "end")
    assert (response.response_id, response.server) == ("chatcmpl-1", server)
    assert len(jumping.ids) == 1


async def test_usage_and_cost_are_reported_and_totals_announced(fake_model: FakeModels) -> None:
    fake_model.script(Reply("x", input_tokens=2000, output_tokens=1000))
    seen: list[Any] = []
    totals = UsageUpdate(model="fake:model", input_tokens=9, output_tokens=9, cost=9.0)

    def on_usage(model: str, usage: TokenUsage, cost: float) -> UsageUpdate:
        seen.append((model, usage, cost))
        return totals

    me = Recorder()
    priced = ModelSettings(name="model", input_price=3.0, output_price=15.0)
    async with gateway(fake_model, model=priced) as models:
        reply = await models.chat(me, HELLO, on_usage=on_usage)
    assert seen == [("fake:model", TokenUsage(input_tokens=2000, output_tokens=1000), pytest.approx(0.021))]
    assert reply.cost == pytest.approx(0.021)
    assert me.events[-1] == totals


async def test_a_budget_that_is_used_up_ends_the_call(fake_model: FakeModels) -> None:
    def on_usage(model: str, usage: TokenUsage, cost: float) -> None:
        raise BudgetReached("no more tokens")

    async with gateway(fake_model) as models:
        with pytest.raises(BudgetReached):
            await models.chat(Recorder(), HELLO, on_usage=on_usage)


async def test_settings_fill_the_gaps_of_a_request(fake_model: FakeModels) -> None:
    async with gateway(fake_model, temperature=0.3, top_p=0.8, max_output_tokens=99) as models:
        await models.chat(Recorder(), HELLO)
        await models.chat(Recorder(), ChatRequest(messages=HELLO.messages, temperature=0.0, max_tokens=5))
    first, second = (request.json for request in fake_model.requests)
    assert (first["temperature"], first["top_p"], first["max_tokens"]) == (0.3, 0.8, 99)
    assert (second["temperature"], second["top_p"], second["max_tokens"]) == (0.0, 0.8, 5)


async def test_a_model_without_system_messages_gets_the_prompt_in_its_first_turn(fake_model: FakeModels) -> None:
    model = ModelSettings(name="model", real_name="real-9", no_system_message=True, system_prompt_prefix="/no_think ")
    async with gateway(fake_model, model=model) as models:
        await models.chat(Recorder(), ChatRequest(system="Be kind.", messages=HELLO.messages))
    body = fake_model.requests[0].json
    assert body["model"] == "real-9"
    assert body["messages"] == [{"role": "user", "content": "/no_think Be kind.\n\nhello"}]


async def test_what_a_model_cannot_do_is_not_asked_of_it(fake_model: FakeModels) -> None:
    model = ModelSettings(name="model", supports_function_calling=False, supports_json_schema=False)
    request = ChatRequest(messages=HELLO.messages, tools=(Tool(name="add"),), response_schema={"type": "object"})
    async with gateway(fake_model, model=model) as models:
        await models.chat(Recorder(), request)
    assert not {"tools", "response_format"} & fake_model.requests[0].json.keys()


async def test_the_key_travels_in_the_header_and_connections_are_shared(fake_model: FakeModels) -> None:
    async with gateway(fake_model) as models:
        for _ in range(3):
            await models.chat(Recorder(), HELLO)
        assert fake_model.accepted == 1
    assert fake_model.requests[0].headers["authorization"] == "Bearer sk-test"
    await fake_model.until(lambda server: server.open == 0)


async def test_a_local_model_without_engines_is_refused(tmp_path: Any) -> None:
    weights = tmp_path / "tiny.gguf"
    weights.write_bytes(b"GGUF")
    pytest.importorskip("xllamacpp", reason="the extra `local` is not installed")
    async with reaching(Settings()) as models:
        with pytest.raises(ConfigError, match=says("work.models.gateway.Gateway.check")):
            models.check(f"local:{weights}")


async def test_zero_tries_are_a_mistake_of_the_caller(fake_model: FakeModels) -> None:
    async with gateway(fake_model) as models:
        with pytest.raises(ValueError, match=says("work.models.gateway.Gateway.chat")):
            await models.chat(Recorder(), HELLO, attempts=0)
