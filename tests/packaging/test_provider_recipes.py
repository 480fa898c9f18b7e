"""The recipes of docs/providers.md, and every other piece of config.yaml in the pages about models, are accepted."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from callboard.actors.work.models.catalog import ModelCatalog
from callboard.actors.work.models.providers import READY_MADE, variable_of
from callboard.protocol.settings import CLIENT_TYPES, read_settings

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("models.md", "providers.md", "limits.md", "costs.md")
TYPES = set(CLIENT_TYPES) - {"anthropic"}  # another name for claude

FENCES = re.compile(r"^```yaml\n(.*?)^```", re.DOTALL | re.MULTILINE)
PIECES = [
    pytest.param(page, text, id=f"{page}-{number}")
    for page in PAGES
    for number, text in enumerate(FENCES.findall((DOCS / page).read_text("utf-8")))
]


@pytest.mark.parametrize(("page", "text"), PIECES)
def test_every_piece_of_settings_is_accepted_and_its_models_are_known(page: str, text: str) -> None:
    environ = dict.fromkeys(re.findall(r"\$\{(\w+)\}", text), "x")
    settings, problems = read_settings(text, "config.yaml", environ)
    assert [str(problem) for problem in problems] == []
    catalog = ModelCatalog(settings, environ)
    for client in settings.clients:
        for model in client.models:
            if model.type == "chat":
                assert catalog.named(f"{client.name}:{model.name}")[1] == model


def test_every_type_of_client_has_a_recipe_that_a_newcomer_can_paste() -> None:
    page = (DOCS / "providers.md").read_text("utf-8")
    pasted = set(re.findall(r"^  - type: ([\w-]+)", page, re.MULTILINE))
    assert TYPES - pasted == {"local"}  # which needs none
    assert "callboard models pull smollm2" in page


def test_the_table_of_models_has_a_row_and_a_column_for_every_type_of_client() -> None:
    page = (DOCS / "models.md").read_text("utf-8")
    section = page.partition("\n## Providers\n")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| \[`([\w-]+)`\]", section, re.MULTILINE)) == TYPES
    (head,) = [line for line in section.splitlines() if line.startswith("| | `openai`")]
    assert set(re.findall(r"`([\w-]+)`", head)) == TYPES
    columns = head.count("|")
    rows = section.partition(head)[2].strip().splitlines()
    assert all(row.count("|") == columns for row in rows if row.startswith("|"))


def test_the_names_that_need_no_address_are_all_told() -> None:
    page = (DOCS / "providers.md").read_text("utf-8")
    told = re.findall(r"^\| `([\w-]+)` \| `(\w+)` \| `(https://[^`]+)` \|$", page, re.MULTILINE)
    assert told == [(name, variable_of(name), url) for name, url in READY_MADE.items()]


@pytest.mark.parametrize("page", sorted(path.name for path in DOCS.glob("*.md")))
def test_links_to_sections_of_these_pages_lead_there(page: str) -> None:
    text = (DOCS / page).read_text("utf-8")
    wrong = [
        f"{name}#{anchor}"
        for name, anchor in re.findall(r"\]\(((?:models|providers|limits|costs)\.md)#([\w-]+)\)", text)
        if anchor not in _anchors(name)
    ]
    if page in PAGES:
        wrong += [f"#{anchor}" for anchor in re.findall(r"\]\(#([\w-]+)\)", text) if anchor not in _anchors(page)]
    assert wrong == []


def _anchors(page: str) -> set[str]:
    text = re.sub(r"^```.*?^```", "", (DOCS / page).read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    heads = re.findall(r"^#{1,4} (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}
