"""Lines of ours on a narrow terminal."""

from __future__ import annotations

import pytest

from callboard.cli.render.wrap import wrapped

HELP = ".compress session   Put a summary in the place of what was said"


@pytest.mark.parametrize(
    ("line", "columns", "rows"),
    [
        ("short", 40, ["short"]),
        ("", 40, [""]),
        ("one two three", 8, ["one two", "three"]),
        ("    did you mean 'clients' or another?", 24, ["    did you mean", "    'clients' or", "    another?"]),
        (
            HELP,
            40,
            [
                ".compress session   Put a summary in the",
                "                    place of what was",
                "                    said",
            ],
        ),
        (HELP, 30, [".compress session   Put a", "summary in the place of what", "was said"]),
        ("see http://127.0.0.1:8807/#token=abcdefgh now", 20, ["see", "http://127.0.0.1:8807/#token=abcdefgh", "now"]),
        ("文字 文字 文字", 10, ["文字 文字", "文字"]),
        ("a\tb " + "c" * 40, 20, ["a\tb " + "c" * 40]),
    ],
)
def test_a_line_is_broken_at_blanks_and_goes_on_where_its_text_stands(line: str, columns: int, rows: list[str]) -> None:
    assert wrapped(line, columns) == rows


@pytest.mark.parametrize("columns", range(1, 70))
def test_no_word_is_lost_at_any_width(columns: int) -> None:
    for line in (HELP, "  - a list  with  blanks in it, of some length", "x" * 30 + " y " + "z" * 30):
        assert " ".join(wrapped(line, columns)).split() == line.split()
