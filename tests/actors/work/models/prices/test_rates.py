"""What replies cost: laws that hold for all rates, and tiers at their bounds."""

from __future__ import annotations

from datetime import UTC, date, datetime, time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.work.models.prices.price_lookup import vendored
from callboard.actors.work.models.prices.table import FREE, Rates, Tariff, Tier, Tiered
from callboard.protocol.chat import TokenUsage

counts = st.integers(0, 10**9)
usages = st.builds(
    TokenUsage,
    input_tokens=counts,
    output_tokens=counts,
    cached_tokens=counts,
    cache_write_tokens=counts,
    cache_write_1h_tokens=counts,
    reasoning_tokens=counts,
)
prices = st.floats(0, 1000)
tiered = st.builds(
    lambda base, steps: Tiered(base, tuple(Tier(above, price) for above, price in sorted(steps))),
    prices,
    st.lists(st.tuples(st.integers(0, 10**7), prices), max_size=3),
)
rates = st.builds(
    Rates,
    input=prices | tiered,
    output=prices | tiered,
    cached=st.none() | prices | tiered,
    cache_write=st.none() | prices | tiered,
    cache_write_1h=st.none() | prices | tiered,
    reasoning=st.none() | prices,
    request=st.just(0.0) | st.floats(0, 1),
)


@given(rates, usages)
def test_no_cost_is_negative_or_endless(own: Rates, usage: TokenUsage) -> None:
    assert 0 <= own.cost(usage) < float("inf")


@given(rates, usages)
def test_a_cost_is_the_sum_of_its_parts_and_every_token_is_in_exactly_one(own: Rates, usage: TokenUsage) -> None:
    parts = list(own.parts(usage))
    assert len({name for name, _, _ in parts}) == len(parts)
    of_output = sum(tokens for name, tokens, _ in parts if name in ("output", "reasoning"))
    assert of_output == usage.output_tokens
    assert sum(tokens for _, tokens, _ in parts) - of_output == usage.input_tokens
    assert own.cost(usage) == pytest.approx(sum(tokens * price for _, tokens, price in parts) / 1e6 + own.request)


def _of_table() -> list[Rates]:
    return [each for seller in vendored().providers for entry in seller.models for each in entry.rates]


@given(st.sampled_from(_of_table()), counts, counts, st.integers(0, 10**6))
def test_what_the_cache_had_is_never_dearer_by_the_published_rates(
    own: Rates, taken: int, cached: int, given_: int
) -> None:
    plain = TokenUsage(input_tokens=taken, output_tokens=given_)
    part = msgspec.structs.replace(plain, cached_tokens=cached)
    assert own.cost(part) <= own.cost(plain) * (1 + 1e-9)


@given(rates, usages, st.integers(0, 10**6))
def test_one_answer_more_is_never_cheaper(own: Rates, usage: TokenUsage, more: int) -> None:
    longer = msgspec.structs.replace(usage, output_tokens=usage.output_tokens + more)
    if usage.reasoning_tokens <= usage.output_tokens:  # else tokens of another rate come, too
        assert own.cost(longer) >= own.cost(usage) * (1 - 1e-9)


@pytest.mark.parametrize(
    ("taken", "million"), [(1, 1.0), (200_000, 1.0), (200_001, 2.0), (500_000, 2.0), (500_001, 4.0)]
)
def test_all_tokens_of_a_request_cost_what_its_tier_says(taken: int, million: float) -> None:
    own = Rates(input=Tiered(1.0, (Tier(200_000, 2.0), Tier(500_000, 4.0))), output=0.0)
    assert own.cost(TokenUsage(input_tokens=taken)) == pytest.approx(taken * million / 1e6)


def test_the_tier_of_the_output_goes_by_the_input() -> None:
    own = Rates(input=0.0, output=Tiered(10.0, (Tier(200_000, 15.0),)))
    assert own.cost(TokenUsage(input_tokens=200_000, output_tokens=10**6)) == pytest.approx(10)
    assert own.cost(TokenUsage(input_tokens=200_001, output_tokens=10**6)) == pytest.approx(15)


def test_parts_without_a_rate_cost_what_the_whole_does() -> None:
    own = Rates(input=2.0, output=8.0)
    usage = TokenUsage(
        input_tokens=10**6, output_tokens=10**6, cached_tokens=10**5, cache_write_tokens=10**5, reasoning_tokens=10**5
    )
    assert own.cost(usage) == pytest.approx(10)


def test_an_hour_in_the_cache_has_its_own_rate_or_that_of_writing() -> None:
    usage = TokenUsage(input_tokens=2_000_000, cache_write_tokens=2_000_000, cache_write_1h_tokens=500_000)
    assert Rates(input=3.0, output=15.0, cache_write=3.75, cache_write_1h=6.0).cost(usage) == pytest.approx(8.625)
    assert Rates(input=3.0, output=15.0, cache_write=3.75).cost(usage) == pytest.approx(7.5)


def test_the_last_rates_that_count_are_meant() -> None:
    tariff = Tariff(rates=(Rates(input=10.0, output=0.0), Rates(input=2.0, output=0.0, since=date(2025, 6, 10))))
    usage = TokenUsage(input_tokens=10**6)
    assert tariff.cost(usage, datetime(2025, 6, 9, 23, 59, tzinfo=UTC)) == 10
    assert tariff.cost(usage, datetime(2025, 6, 10, tzinfo=UTC)) == 2
    night = time(0, 30, tzinfo=UTC), time(16, 30, tzinfo=UTC)
    tariff = Tariff(rates=(Rates(input=1.0, output=0.0), Rates(input=4.0, output=0.0, hours=night)))
    assert tariff.cost(usage, datetime(2025, 6, 9, 0, 30, tzinfo=UTC)) == 4
    assert tariff.cost(usage, datetime(2025, 6, 9, 16, 30, tzinfo=UTC)) == 1


def test_if_none_counts_yet_the_first_are_meant() -> None:
    tariff = Tariff(rates=tuple(Rates(input=n, output=0.0, since=date(2030 + n, 1, 1)) for n in (1, 2)))
    assert tariff.cost(TokenUsage(input_tokens=10**6), datetime(2026, 1, 1, tzinfo=UTC)) == 1


def test_what_runs_here_is_free() -> None:
    assert FREE.cost(TokenUsage(input_tokens=10**9, output_tokens=10**9)) == 0
