"""genai-prices' file as a table: what is taken over, and what is refused."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time
from typing import Any

import pytest
from support.messages import says

from callboard.actors.work.models.prices.genai_prices import LARGEST, encoded, read
from callboard.actors.work.models.prices.price_lookup import vendored
from callboard.actors.work.models.prices.table import Rates, Tier, Tiered
from callboard.protocol.errors import ConfigError

TODAY = date(2026, 8, 22)


def theirs(**changes: Any) -> list[dict[str, Any]]:
    """A file as they write it: two of their providers, cut short."""
    model = {
        "id": "gemini-2.5-pro",
        "match": {"starts_with": "gemini-2.5-pro"},
        "name": "Gemini 2.5 Pro",
        "context_window": 1_048_576,
        "prices": {
            "input_mtok": {"base": 1.25, "tiers": [{"start": 200_000, "price": 2.5}]},
            "cache_read_mtok": {"base": 0.125, "tiers": [{"start": 200_000, "price": 0.25}]},
            "output_mtok": {"base": 10, "tiers": [{"start": 200_000, "price": 15}]},
            "input_audio_mtok": 1,
        },
    }
    conditional = {
        "id": "deepseek-chat",
        "match": {"or": [{"equals": "deepseek-chat"}, {"regex": "^deepseek-v[0-9]$"}]},
        "prices": [
            {"prices": {"input_mtok": 0.27, "output_mtok": 1.1, "requests_kcount": 5}},
            {"constraint": {"start_date": "2026-01-01"}, "prices": {"input_mtok": 0.1, "output_mtok": 1}},
            {
                "constraint": {"start_time": "00:30:00Z", "end_time": "16:30:00Z"},
                "prices": {"input_mtok": 1, "output_mtok": 2, "output_reasoning_mtok": 3},
            },
        ],
    }
    google = {"id": "google", "name": "Google", "api_pattern": r"https://(.*\.)?googleapis\.com", "models": [model]}
    deepseek = {"id": "deepseek", "name": "D", "api_pattern": "https://api", "models": [conditional], "extractors": []}
    return [google | {"provider_match": {"contains": "gemini"}} | changes, deepseek]


def _read(content: Any) -> Any:
    return read(json.dumps(content).encode(), where="prices.json", today=TODAY)


def test_all_kinds_of_prices_are_taken_over() -> None:
    google, deepseek = _read(theirs()).providers
    (pro,) = google.models
    assert pro.window == 1_048_576
    (rates,) = pro.rates
    assert rates.input == Tiered(1.25, (Tier(200_000, 2.5),))
    assert (rates.cached, rates.reasoning) == (Tiered(0.125, (Tier(200_000, 0.25),)), None)
    plain, dated, timed = deepseek.models[0].rates
    assert plain == Rates(input=0.27, output=1.1, request=0.005)
    assert dated.since == date(2026, 1, 1)
    assert timed.hours == (time(0, 30, tzinfo=UTC), time(16, 30, tzinfo=UTC))
    assert timed.reasoning == 3
    assert timed.count_at(datetime(2026, 1, 1, 12, tzinfo=UTC))


def test_a_table_that_was_made_is_one_again() -> None:
    table = _read(theirs())
    again = read(encoded(table), where="elsewhere", today=date(2030, 1, 1))
    assert encoded(again) == encoded(table)
    assert (again.made, again.source) == (TODAY, "prices.json")


def test_the_table_that_comes_with_us_is_whole() -> None:
    table = read(encoded(vendored()), where="table.json", today=TODAY)
    assert len(table.providers) > 30
    assert sum(len(each.models) for each in table.providers) > 1300
    assert table.source.startswith("genai-prices")


def _with_model(**changes: Any) -> list[dict[str, Any]]:
    content = theirs()
    content[0]["models"][0] |= changes
    return content


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ([], "has no prices"),
        (theirs(models=[])[:1], "has no prices"),
        ("prices", "Expected `array`, got `str`"),
        ([{"provider": "openai", "models": [{"name": "gpt-4o", "input_price": 2.5}]}], "missing required field `id`"),
        (_with_model(prices={"input_mtok": -1, "output_mtok": 1}), ">= 0"),
        (_with_model(prices={"input_mtok": "cheap"}), r"\$\[0\]\.models\[0\]\.prices"),
        (_with_model(match={"regex": "["}), "is not a valid regular expression"),
        (_with_model(match={}), says("work.models.prices.table.Match.__post_init__")),
        (
            _with_model(match={"equals": "a", "contains": "b"}),
            says("work.models.prices.table.Match.__post_init__", given=2),
        ),
        (theirs(api_pattern="("), "is not a valid regular expression"),
        ({"source": "x", "made": "2026-01-01", "providers": [{"id": "a", "api": "b", "models": [1]}]}, "Expected"),
    ],
)
def test_what_is_no_table_of_prices_is_refused_and_told_where(content: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=text) as failed:
        _read(content)
    assert str(failed.value).startswith("prices.json")
    assert "data_slim.json" in str(failed.value)


@pytest.mark.parametrize("data", [b"", b"<html>", b"\xff\xfe", b"- provider: openai\n  models: []\n", b"[" * 10_000])
def test_what_is_no_json_is_refused(data: bytes) -> None:
    with pytest.raises(ConfigError, match=says("work.models.prices.genai_prices.read.2")):
        read(data, where="prices.json", today=TODAY)


def test_an_endless_file_is_refused() -> None:
    with pytest.raises(ConfigError, match=says("work.models.prices.genai_prices.read", LARGEST=16)):
        read(b" " * (LARGEST + 1), where="prices.json", today=TODAY)
