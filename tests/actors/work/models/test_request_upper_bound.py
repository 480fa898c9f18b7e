"""What a request may come to at most, as it is sent: with its patches, its parameters and its thinking."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import trio
import trio.testing
from support.fake_models import FakeModels, Reply
from support.gateways import Silent, reaching

from callboard.actors.work.models.catalog import ModelCatalog, ModelTarget
from callboard.actors.work.models.request_upper_bound import ASSUMED, bound, most_input
from callboard.actors.work.spending.accounts import Account, Amount
from callboard.protocol.chat import ChatRequest, UserTurn
from callboard.protocol.requests import Limits
from callboard.protocol.settings import Settings, read_settings

HELLO = ChatRequest(messages=(UserTurn("hello"),))
WITH_100 = msgspec.structs.replace(HELLO, max_tokens=100)

NO_PATCH: dict[str, Any] = {}


def settings(type: str, body: dict[str, Any], base: str = "http://127.0.0.1:9", **model: Any) -> Settings:
    entry = {"name": "m", "patch": {"body": body}, **model} if body else {"name": "m", **model}
    more = {"region": "eu-central-1"} if type == "bedrock" else {}
    client = {"type": type, "name": "lab", "api_base": base, "api_key": "sk-lab", "models": [entry], **more}
    found, problems = read_settings(msgspec.json.encode({"clients": [client]}).decode(), "config.yaml", {})
    assert problems == []
    return found


def target(type: str, body: dict[str, Any], **model: Any) -> ModelTarget:
    return ModelCatalog(settings(type, body, **model), {}).targets("lab:m")[0]


def most_output(request: ChatRequest, target: ModelTarget) -> int:
    size = 0 if target.patched is None else target.patched.size
    extra = len(msgspec.json.encode(request.extra)) if request.extra else 0
    return bound(request, target).tokens - most_input(request) - size - extra


@pytest.mark.parametrize(
    ("type", "body", "output"),
    [
        ("openai", NO_PATCH, 100),
        ("openai", {"seed": 1}, 100),
        ("openai", {"max_tokens": 9_000}, 9_000),
        ("openai", {"max_completion_tokens": 9_000}, 9_000),
        ("openai-compatible", {"max_tokens": 50}, 50),
        ("openai-compatible", {"max_tokens": 5e3}, 5_000),
        ("openai-compatible", {"max_tokens": None}, ASSUMED),
        ("openai-compatible", {"max_tokens": "many"}, ASSUMED),
        ("openai-compatible", {"n": 3}, 300),
        ("openai-compatible", {"n": 2, "best_of": 4, "max_tokens": 10}, 40),
        ("openai-compatible", {"n": None, "options": None}, 100),
        ("claude", {"max_tokens": 64_000}, 64_000),
        ("gemini", {"generationConfig": {"maxOutputTokens": 8_000, "candidateCount": 2}}, 16_000),
        ("gemini", {"generation_config": {"max_output_tokens": 8_000}}, 8_000),
        ("ollama", {"options": {"num_predict": 7_000}}, 7_000),
        ("ollama", {"options": {"num_predict": -1}}, ASSUMED),
        ("cohere", {"max_tokens": 4_000}, 4_000),
        ("bedrock", {"inferenceConfig": {"maxTokens": 4_000}}, 4_000),
        ("bedrock", {"additionalModelRequestFields": {"max_tokens": 4_000}}, 4_000),
    ],
)
def test_a_reply_has_what_the_body_allows_in_the_words_of_each_provider(
    type: str, body: dict[str, Any], output: int
) -> None:
    assert most_output(WITH_100, target(type, body)) == output


def test_what_a_body_does_not_say_the_settings_know() -> None:
    patched = target("openai-compatible", {"max_tokens": None, "n": 2}, max_output_tokens=500)
    assert most_output(WITH_100, patched) == 1_000


@pytest.mark.parametrize(
    ("extra", "output"), [({"seed": 1}, 100), ({"n": 3}, 300), ({"max_completion_tokens": 9_000}, 9_000)]
)
def test_parameters_in_the_providers_own_words_count(extra: dict[str, Any], output: int) -> None:
    request = msgspec.structs.replace(WITH_100, extra=extra)
    assert most_output(request, target("openai-compatible", NO_PATCH)) == output


def test_room_for_thinking_counts() -> None:
    request = msgspec.structs.replace(HELLO, thinking_budget=30_000)
    assert most_output(request, target("claude", NO_PATCH, real_name="claude-sonnet-4-5")) > 30_000


def test_what_a_patch_adds_counts_as_input_as_well() -> None:
    system = {"messages": [{"role": "system", "content": "x" * 10_000}]}
    assert bound(WITH_100, target("openai-compatible", system)).tokens > 10_100


async def test_requests_at_once_wait_for_room_for_what_is_really_sent(fake_model: FakeModels) -> None:
    held = trio.Event()
    fake_model.answer_with(lambda _: Reply("ok", hold=held))
    request = msgspec.structs.replace(WITH_100, model="lab:m", max_tokens=10)
    account = Account("the run", Limits(max_tokens=1_000))
    patched = settings("openai-compatible", {"max_tokens": 2_000}, fake_model.openai_base)
    async with reaching(patched) as gateway, trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(lambda: gateway.chat(Silent(), request, account=account))
        await fake_model.arrived(1)
        await trio.testing.wait_all_tasks_blocked()
        assert account.hold(Amount()) is None
        assert len(fake_model.requests) == 1
        held.set()
    assert len(fake_model.requests) == 3
