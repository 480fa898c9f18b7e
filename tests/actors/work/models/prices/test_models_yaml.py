"""Loki's list of models, laid over the table."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
from support.messages import says

from callboard.actors.work.models.prices.price_lookup import Finder, vendored
from callboard.actors.work.models.prices.table import PriceTable, Tariff
from callboard.actors.work.models.prices.update import laid_over, update
from callboard.protocol.errors import ConfigError
from callboard.protocol.settings import ClientSettings, ModelSettings

TODAY = date(2026, 11, 23)

LISTED = b"""
# as aichat and Loki write it
- provider: openai
  # docs:
  #   - https://platform.openai.com/docs/models
  models:
    - name: gpt-of-tomorrow
      type: chat
      max_input_tokens: 400000
      max_output_tokens: 128000
      input_price: 1.25
      output_price: 10
      supports_vision: true
      supports_function_calling: true
      patch:
        body: {max_tokens: null, temperature: null}
    - name: gpt-4o-mini
      max_input_tokens: 128000
      input_price: 0.15
      output_price: 0.6
    - name: gpt-4o
      input_price: 99
      output_price: 100
    - name: text-embedding-of-tomorrow
      type: embedding
      input_price: 0.02
      max_tokens_per_chunk: 8191
    - {name: of-no-price, type: chat}
    - {name: 'gpt-4o:thinking', real_name: gpt-4o, input_price: 2.5, output_price: 10}
- platform: claude
  models:
    - {name: claude-of-tomorrow, input_price: 3, output_price: 15}
- provider: somewhere
  docs: [https://somewhere.example]
  models:
    - {name: Model/One, input_price: 1, output_price: 2}
- provider: nobody
  models: []
"""


def merged(data: bytes) -> PriceTable:
    return laid_over(vendored(), data, where="models.yaml", today=TODAY)


async def tariff(tmp_path: Path, client: ClientSettings, model: str, type: str = "chat") -> Tariff | None:
    environ = {"XDG_DATA_HOME": str(tmp_path)}
    (tmp_path / "models.yaml").write_bytes(LISTED)
    await update(str(tmp_path / "models.yaml"), environ, today=date(2099, 1, 1))
    return Finder(environ).find(client, ModelSettings(name=model, type=type), client.api_base).tariff


@pytest.mark.parametrize(
    ("client", "model", "type", "prices"),
    [
        (ClientSettings(type="openai", name="openai"), "gpt-of-tomorrow", "chat", (1.25, 10)),
        (ClientSettings(type="openai", name="openai"), "gpt-4o", "chat", (99, 100)),
        (ClientSettings(type="openai", name="openai"), "text-embedding-of-tomorrow", "embedding", (0.02, None)),
        (ClientSettings(type="claude", name="c"), "claude-of-tomorrow", "chat", (3, 15)),
        (ClientSettings(type="openai-compatible", name="somewhere", api_base="http://x"), "Model/One", "chat", (1, 2)),
    ],
)
async def test_what_it_lists_has_its_price(
    tmp_path: Path, client: ClientSettings, model: str, type: str, prices: tuple[float, float | None]
) -> None:
    found = await tariff(tmp_path, client, model, type)
    assert found is not None
    assert (found.now().input, found.now().output) == prices


async def test_where_prices_are_the_same_the_table_keeps_what_else_it_knows(tmp_path: Path) -> None:
    found = await tariff(tmp_path, ClientSettings(type="openai", name="openai"), "gpt-4o-mini")
    assert found is not None
    assert (found.now().input, found.now().output, found.now().cached) == (0.15, 0.6, 0.075)
    other = await tariff(tmp_path, ClientSettings(type="openai", name="openai"), "gpt-4o")
    assert other is not None
    assert other.now().cached is None, "of a price that is another one"


def test_the_rest_of_the_table_stays_and_it_says_whose_it_is() -> None:
    before, table = vendored(), merged(LISTED)
    assert (table.source, table.made) == ("models.yaml", TODAY)
    assert [each.id for each in table.providers] == [*(each.id for each in before.providers), "somewhere"]
    groq = [next(each for each in one.providers if each.id == "groq") for one in (before, table)]
    assert groq[0].raw == groq[1].raw
    assert table.provider_at("http://nowhere.example") is None
    openai = next(each for each in table.providers if each.id == "openai")
    entry = openai.named("gpt-of-tomorrow")
    assert entry is not None
    assert (entry.window, openai.named("of-no-price"), openai.named("gpt-4o:thinking")) == (400_000, None, None)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "it contains nothing; expected a list of entries with `provider:`"),
        (b"just words\n", says("work.models.prices.update._models.3")),
        (b"clients:\n  - a\n", "is not a models file: it contains a mapping"),
        (b"- openai\n", r"line 1: \[0\] is"),
        (b"- provider: openai\n", r"line 1: \[0\] has no `provider`, or no list of `models`"),
        (b"- models: []\n", says("work.models.prices.update._models.5", number=0)),
        (b"- provider: x\n  models: {a: b}\n", says("work.models.prices.update._models.5")),
        (b"- provider: x\n  models:\n    - gpt\n", r"line 3: \[0\].models\[0\] is"),
        (
            b"- provider: x\n  models:\n    - type: chat\n",
            says("protocol.reading.Reading._missing.2", prefix="…line 3: ", key="name", state="…`name`"),
        ),
        (
            b"- provider: x\n  models:\n    - name: a\n      input_price: cheap\n",
            says("protocol.reading.Reading._misfit", prefix="…line 4: ", path="[0].models[0].input_price"),
        ),
        (b"- provider: x\n  models:\n    - name: a\n      input_price: -1\n", "line 4: .*input_price"),
        (b"- provider: x\n  models:\n    - name: a\n", says("work.models.prices.update.laid_over")),
        (b"- provider: [\n", says("work.models.prices.update._check")),
        (b"\xff\xfe", says("work.models.prices.update._models.2", error="'utf-8'…")),
        (b"#" * (2 * 1024 * 1024 + 1), says("work.models.prices.update._models", LARGEST_YAML=2)),
        (b"<html>404</html>", says("work.models.prices.update._models.3")),
    ],
)
def test_what_is_wrong_is_told_with_its_line(data: bytes, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as failed:
        merged(data)
    assert str(failed.value).startswith("models.yaml ")
