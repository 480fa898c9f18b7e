"""Where Ollama is, and the model to begin with at each provider."""

from __future__ import annotations

import pytest

from callboard.actors.work.models.catalog import ModelCatalog
from callboard.actors.work.models.providers import BUILT_IN, READY_MADE, SUGGESTED, base_of, ollama_of, suggested
from callboard.protocol.settings import ClientSettings, Settings

UNLISTED = {"deepinfra"}
"""Providers that the price table does not have."""


@pytest.mark.parametrize(
    ("text", "base"),
    [
        ("", "http://localhost:11434"),
        ("127.0.0.1:5", "http://127.0.0.1:5"),
        ("gpu.lan", "http://gpu.lan:11434"),
        (":7000", "http://127.0.0.1:7000"),
        ("0.0.0.0", "http://127.0.0.1:11434"),
        ("[::1]:9", "http://[::1]:9"),
        ("http://gpu.lan", "http://gpu.lan:80"),
        ("https://gpu.lan", "https://gpu.lan:443"),
        ("https://gpu.lan:8/ollama/", "https://gpu.lan:8/ollama"),
        ('"gpu.lan:1"', "http://gpu.lan:1"),
        ("gpu.lan:x", "http://gpu.lan:11434"),
        ("[::1", "http://[::1"),
        ("https://[zz]:1", "https://[zz]:1"),
    ],
)
def test_ollama_is_where_its_own_variable_says(text: str, base: str) -> None:
    assert ollama_of({"OLLAMA_HOST": text}) == base
    assert base_of(ClientSettings(type="ollama", name="ollama"), {"OLLAMA_HOST": text}) == base


@pytest.mark.parametrize("name", SUGGESTED)
def test_the_model_to_begin_with_has_a_price(name: str) -> None:
    client = ClientSettings(type=BUILT_IN.get(name, "openai-compatible"), name=name)
    catalog = ModelCatalog(Settings(), {f"{name.upper()}_API_KEY": "k"})
    model = f"{name}:{suggested(client)}"
    target = catalog.target(model)
    assert (target.price.tariff is not None) != (name in UNLISTED)


def test_a_client_of_that_name_elsewhere_has_models_of_its_own() -> None:
    assert set(SUGGESTED) <= {*BUILT_IN, *READY_MADE}
    assert suggested(ClientSettings(type="openai-compatible", name="groq", api_base="http://lab")) == ""
    assert suggested(ClientSettings(type="openai-compatible", name="my-lab")) == ""
