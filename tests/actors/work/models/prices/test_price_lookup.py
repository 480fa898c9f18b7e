"""Prices of models of ours, beside what their providers publish, and what `config.yaml` says instead."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from callboard.actors.work.models.catalog import ModelCatalog
from callboard.actors.work.models.prices.price_lookup import vendored
from callboard.actors.work.models.providers import READY_MADE
from callboard.protocol.chat import TokenUsage
from callboard.protocol.settings import ClientSettings, ModelSettings, Settings

KEYS = {f"{name.upper()}_API_KEY": "k" for name in ("openai", "anthropic", "gemini", "cohere", *READY_MADE)}
M = 10**6


def _cost(model: str, usage: TokenUsage, *clients: ClientSettings, **environ: str) -> float | None:
    target = ModelCatalog(Settings(clients=clients), {**KEYS, **environ}).target(model)
    tariff = target.price.tariff
    return None if tariff is None else tariff.cost(usage, datetime(2026, 8, 22, 12, tzinfo=UTC))


@pytest.mark.parametrize(
    ("model", "usage", "usd"),
    [
        # openai.com/api/pricing: $0.15, cached $0.075, out $0.60
        ("openai:gpt-4o-mini", TokenUsage(input_tokens=1000, output_tokens=500), 0.00045),
        ("openai:gpt-4o-mini", TokenUsage(input_tokens=M, output_tokens=M, cached_tokens=M // 2), 0.7125),
        ("openai:gpt-4o-mini-2024-07-18", TokenUsage(input_tokens=M), 0.15),
        # platform.openai.com: GPT-4.1 $2, cached $0.50, out $8; o3 since 2025-06-10 $2 and $8
        ("openai:gpt-4.1", TokenUsage(input_tokens=M, output_tokens=M, cached_tokens=M), 8.5),
        ("openai:o3", TokenUsage(input_tokens=M, output_tokens=M, reasoning_tokens=M), 10),
        # anthropic.com/pricing: Sonnet 4: $3, writing $3.75 (for an hour $6), reading $0.30, out $15
        ("claude:claude-sonnet-4-20250514", TokenUsage(input_tokens=M, output_tokens=M), 18),
        (
            "claude:claude-sonnet-4-20250514",
            TokenUsage(input_tokens=M, output_tokens=M, cached_tokens=M // 2, cache_write_tokens=M // 2),
            17.025,
        ),
        ("claude:claude-sonnet-4-5", TokenUsage(input_tokens=200_000, output_tokens=M), 15.6),
        ("claude:claude-sonnet-4-5", TokenUsage(input_tokens=400_000, output_tokens=M), 24.9),
        ("claude:claude-3-5-haiku-latest", TokenUsage(input_tokens=M, output_tokens=M, cached_tokens=M), 4.08),
        # ai.google.dev/pricing: 2.5 Pro $1.25 and $10, above 200k $2.50 and $15; Flash $0.30 and $2.50
        ("gemini:gemini-2.5-pro", TokenUsage(input_tokens=200_000, output_tokens=M), 10.25),
        ("gemini:gemini-2.5-pro", TokenUsage(input_tokens=M, output_tokens=M), 17.5),
        ("gemini:gemini-2.5-pro", TokenUsage(input_tokens=M, cached_tokens=M), 0.25),
        ("gemini:gemini-2.5-flash", TokenUsage(input_tokens=M, output_tokens=M), 2.8),
        # groq.com/pricing: $0.59 and $0.79
        ("groq:llama-3.3-70b-versatile", TokenUsage(input_tokens=M, output_tokens=M), 1.38),
        ("openrouter:openai/gpt-4o-mini", TokenUsage(input_tokens=M, output_tokens=M), 0.75),
        # docs.perplexity.ai: $1 and $1, and $12 per thousand requests of a large context
        ("perplexity:sonar", TokenUsage(input_tokens=M, output_tokens=M), 2.012),
    ],
)
def test_prices_are_those_that_are_published(model: str, usage: TokenUsage, usd: float) -> None:
    assert _cost(model, usage) == pytest.approx(usd)


@pytest.mark.parametrize(
    "name", ["deepseek", "fireworks", "groq", "mistral", "openrouter", "perplexity", "together", "voyageai", "xai"]
)
def test_ready_made_clients_are_known_by_their_addresses(name: str) -> None:
    assert vendored().provider_at(READY_MADE[name]) is not None


ALL = TokenUsage(input_tokens=M, output_tokens=M)


def test_a_name_that_no_provider_has_is_unpriced_and_not_free() -> None:
    assert _cost("openai:gpt-of-tomorrow", ALL) is None
    assert _cost("jina:some-model", ALL) is None


def test_a_proxy_before_openai_has_its_prices_and_an_unknown_server_none() -> None:
    assert _cost("openai:gpt-4o-mini", ALL, OPENAI_BASE_URL="http://127.0.0.1:4000/v1") == pytest.approx(0.75)
    lab = ClientSettings(type="openai-compatible", name="lab", api_base="http://127.0.0.1:4000/v1")
    assert _cost("lab:gpt-4o-mini", ALL, lab) is None
    named = ClientSettings(type="openai-compatible", name="groq", api_base="https://groq.proxy.example/v1")
    assert _cost("groq:llama-3.3-70b-versatile", ALL, named) == pytest.approx(1.38)


@pytest.mark.parametrize(
    ("base", "model", "usd"),
    [
        ("http://localhost:11434", "qwen3:8b", 0.0),
        ("http://127.0.0.1:11434", "qwen3:8b", 0.0),
        ("http://127.0.0.1:11434", "gpt-oss:120b-cloud", None),
        ("http://gpu.example:11434", "qwen3:8b", None),
        ("https://ollama.com", "gpt-oss:120b", None),
    ],
)
def test_an_ollama_on_this_machine_is_free_and_others_are_not_known(base: str, model: str, usd: float | None) -> None:
    assert _cost(f"there:{model}", ALL, ClientSettings(type="ollama", name="there", api_base=base)) == usd


def _own(**prices: float) -> ClientSettings:
    return ClientSettings(type="openai", name="mine", models=(ModelSettings(name="gpt-4o-mini", **prices),))


@pytest.mark.parametrize(
    ("prices", "usd"),
    [
        ({}, 0.0375 + 0.0375 + 0.0375 + 0.6),
        ({"input_price": 1.0}, 1.0 + 0.6),  # all that the table says of input goes
        ({"output_price": 2.0}, 0.1125 + 2.0),
        ({"input_price": 1.0, "output_price": 2.0}, 3.0),
        ({"cached_input_price": 0.5}, 0.0375 + 0.0375 + 0.25 + 0.6),
        ({"cache_write_price": 4.0}, 0.0375 + 0.0375 + 1.0 + 0.6),
        ({"input_price": 0.0, "output_price": 0.0}, 0.0),
        (
            {"input_price": 1.0, "output_price": 2.0, "cached_input_price": 0.1, "cache_write_price": 3.0},
            0.25 + 0.05 + 0.75 + 2.0,
        ),
    ],
)
def test_what_the_settings_say_goes_before_the_table(prices: dict[str, float], usd: float) -> None:
    usage = TokenUsage(input_tokens=M, output_tokens=M, cached_tokens=M // 2, cache_write_tokens=M // 4)
    assert _cost("mine:gpt-4o-mini", usage, _own(**prices)) == pytest.approx(usd)


def test_half_a_price_is_none() -> None:
    half = ClientSettings(
        type="openai-compatible", name="lab", api_base="http://x/v1", models=(ModelSettings(name="m", input_price=1.0),)
    )
    assert _cost("lab:m", ALL, half) is None


def test_the_settings_name_what_the_provider_calls_it() -> None:
    client = ClientSettings(type="openai", name="mine", models=(ModelSettings(name="fast", real_name="gpt-4o-mini"),))
    assert _cost("mine:fast", ALL, client) == pytest.approx(0.75)


def test_every_price_says_where_it_is_from() -> None:
    catalog = ModelCatalog(Settings(clients=(_own(input_price=1.0),), file="/c/config.yaml"), KEYS)
    tariff = catalog.target("mine:gpt-4o-mini").price.tariff
    assert tariff is not None
    assert tariff.origins == {"input": "`input_price` in /c/config.yaml", "output": "price table: openai gpt-4o-mini"}


def test_vectors_want_no_price_of_output() -> None:
    price = ModelCatalog(Settings(), KEYS).access("openai:text-embedding-3-small", "embedding").price.tariff
    assert price is not None
    assert price.cost(TokenUsage(input_tokens=M)) == pytest.approx(0.02)


def test_a_chat_with_a_model_that_only_makes_vectors_is_unpriced() -> None:
    assert _cost("openai:text-embedding-3-small", ALL) is None


def test_the_table_is_read_when_a_price_is_asked_for_and_not_before(monkeypatch: pytest.MonkeyPatch) -> None:
    def read() -> None:
        raise AssertionError("the table was read")

    monkeypatch.setattr("callboard.actors.work.models.prices.price_lookup.vendored", read)
    target = ModelCatalog(Settings(clients=(_own(),)), KEYS).target("mine:gpt-4o-mini")
    with pytest.raises(AssertionError, match="was read"):
        target.cost(ALL)
    whole = _own(input_price=1.0, output_price=1.0, cached_input_price=1.0, cache_write_price=1.0)
    assert ModelCatalog(Settings(clients=(whole,)), KEYS).target("mine:gpt-4o-mini").cost(ALL) == 2.0
