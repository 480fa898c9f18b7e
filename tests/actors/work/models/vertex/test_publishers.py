"""Who made a model of Vertex AI."""

from __future__ import annotations

import pytest

from callboard.actors.work.models.vertex.location import maker_of


@pytest.mark.parametrize(
    ("model", "maker"),
    [
        ("gemini-2.5-flash", ("google", "gemini-2.5-flash")),
        ("google/gemini-2.5-flash", ("google", "gemini-2.5-flash")),
        ("publishers/google/models/gemini-2.5-flash", ("google", "gemini-2.5-flash")),
        ("claude-haiku-4-5@20251001", ("anthropic", "claude-haiku-4-5@20251001")),
        ("anthropic/claude-opus-4-6", ("anthropic", "claude-opus-4-6")),
        ("meta/llama-3.3-70b-instruct-maas", ("meta", "llama-3.3-70b-instruct-maas")),
        ("codestral-2501", ("mistralai", "codestral-2501")),
        ("mistralai/mistral-medium-3", ("mistralai", "mistral-medium-3")),
        ("endpoints/123", ("google", "endpoints/123")),
    ],
)
def test_the_name_of_a_model_says_who_made_it(model: str, maker: tuple[str, str]) -> None:
    assert maker_of(model) == maker
