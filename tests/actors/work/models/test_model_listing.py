"""What is known of models, in a few words."""

from __future__ import annotations

import pytest

from callboard.actors.work.models.model_listing import ModelFacts, chats


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (ModelFacts(), ""),
        (ModelFacts(window=1_000_000), "window 1M"),
        (ModelFacts(window=400_000, input_price=0.75, output_price=4.5), "window 400k; $0.75 in, $4.50 out"),
        (ModelFacts(input_price=0.0, output_price=0.0), "free"),
    ],
)
def test_what_is_known_is_told_in_a_line(facts: ModelFacts, words: str) -> None:
    assert str(facts) == words


@pytest.mark.parametrize("name", ["gpt-4o", "gpt-5.4-mini", "nvidia/nemotron-3-nano", "phi-4", "llama3.2-vision", "o3"])
def test_models_to_chat_with_are_known_by_their_names(name: str) -> None:
    assert chats(name)


@pytest.mark.parametrize(
    "name",
    [
        *("gpt-4o-mini-tts", "ada", "text-davinci-003", "ft:gpt-4o", "gpt-image-1", "nomic-embed-text", "bge-m3"),
        *("gemini-live-2.5-flash", "computer-use", "whisper-1", "snowflake-arctic-embed2", "jina-reranker-v2"),
    ],
)
def test_models_for_something_else_are_known_as_well(name: str) -> None:
    assert not chats(name)
