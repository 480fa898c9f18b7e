"""Which provider and which model a name means."""

from __future__ import annotations

import pytest

from callboard.actors.work.models.prices.price_lookup import vendored
from callboard.actors.work.models.prices.table import Match


@pytest.mark.parametrize(
    ("match", "fits", "misses"),
    [
        (Match(equals="GPT-4o"), "gpt-4o", "gpt-4o-mini"),
        (Match(starts_with="claude-"), "claude-3", "my-claude-3"),
        (Match(ends_with=":free"), "a:free", "a:freed"),
        (Match(contains="sonnet"), "us.anthropic.claude-sonnet-4", "opus"),
        (Match(regex="^o[134]"), "o3", "gpt-o3"),
        (Match(any=(Match(equals="a"), Match(equals="b"))), "b", "c"),
        (Match(all=(Match(contains="hugging"), Match(contains="groq"))), "huggingface_groq", "groq"),
    ],
)
def test_names_are_matched_as_their_authors_mean_it(match: Match, fits: str, misses: str) -> None:
    assert match.fits(fits)
    assert not match.fits(misses)


@pytest.mark.parametrize(
    ("url", "id"),
    [
        ("https://api.openai.com/v1", "openai"),
        ("https://api.anthropic.com/v1", "anthropic"),
        ("https://generativelanguage.googleapis.com/v1beta", "google"),
        ("https://us-central1-aiplatform.googleapis.com/v1", "google"),
        ("https://bedrock-runtime.eu-central-1.amazonaws.com", "aws"),
        ("https://my-resource.openai.azure.com/openai", "azure"),
        ("https://api.openai.com.evil.example/v1", "openai"),  # a price is no credential
    ],
)
def test_a_provider_is_known_by_its_address(url: str, id: str) -> None:
    provider = vendored().provider_at(url)
    assert provider is not None
    assert provider.id == id


def test_nobody_is_found_where_nobody_is() -> None:
    assert vendored().provider_at("http://127.0.0.1:8080/v1") is None
    assert vendored().provider_called("") is None
    assert vendored().provider_called("my-lab") is None


@pytest.mark.parametrize(
    ("provider", "model", "found"),
    [
        ("azure", "gpt-4o-mini", ("openai", "gpt-4o-mini")),  # they sell models of others
        ("google", "claude-opus-4-5@20251101", ("anthropic", "claude-opus-4-5")),
        ("OpenAI", "GPT-4o-Mini", ("openai", "gpt-4o-mini")),
    ],
)
def test_a_model_is_found_in_the_list_of_its_seller_or_of_who_that_falls_back_on(
    provider: str, model: str, found: tuple[str, str]
) -> None:
    table = vendored()
    seller = table.provider_called(provider)
    assert seller is not None
    result = table.find(seller, model)
    assert result is not None
    assert (result[0], result[1].id) == found


def test_every_model_is_found_by_its_own_id_or_by_another_that_stands_before_it() -> None:
    table = vendored()
    lost = [
        (seller.id, entry.id)
        for seller in table.providers
        for entry in seller.models
        if entry.match.equals is not None and table.find(seller, entry.match.equals) is None
    ]
    assert lost == []
