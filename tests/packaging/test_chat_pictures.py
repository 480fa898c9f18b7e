"""The pictures of docs/chat.md show what the program shows."""

from __future__ import annotations

import re

import pytest

from .chat_pictures import PICTURES, SCENES, played, rows_of, words

HERE = PICTURES.parent


def same(name: str) -> None:
    """A mismatch is mended by `make docs`, once the new picture has been looked at."""
    assert words(rows_of(played(name))) == words((PICTURES / f"{name}.svg").read_text())


def test_the_picture_of_a_question_is_what_the_program_shows() -> None:
    same("question")


@pytest.mark.soak
@pytest.mark.parametrize("name", SCENES)
def test_each_picture_is_what_the_program_shows(name: str) -> None:
    same(name)


def test_the_page_has_each_picture_and_none_needs_anything_from_elsewhere() -> None:
    page = (HERE / "chat.md").read_text()
    assert {f"pictures/{name}.svg" for name in SCENES} == set(re.findall(r"\((pictures/[^)]*)\)", page))
    for name in SCENES:
        svg = (PICTURES / f"{name}.svg").read_text()
        assert len(svg) < 20_000
        assert not re.search(r"<script|<image|@import|href|url\(|foreignObject", svg)
