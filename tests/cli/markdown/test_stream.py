"""Markdown that grows: what is settled depends on the text alone, and what is open is small."""

from __future__ import annotations

import random
import re
import time
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.cpu_time import slowness

from callboard.cli.render.markdown.stream import MarkdownStream
from callboard.cli.render.markdown.theme import Theme, of_pygments
from callboard.cli.render.text import safe, width_of

HERE = Path(__file__).parents[3]
ANSI = re.compile(r"\x1b\[[0-9;]*m|\x1b\]8;;[!-~]*\x1b\\")
BITS = (
    *("a ", "b", "word ", "*", "**", "_", "`", "~~", "```\n", "```py\n", "~~~\n", "\n", "\n\n", "- ", "1. ", "> ", "|"),
    *("| a | b |\n", "|---|---|\n", "#", "# ", "    ", "  ", "[x](y)", "[", "]", "(", ")", "<"),
    *("<div>", "\\", "日", "\t"),
    *("$", "---\n", "===\n", "\r\n", "\r", "\x1b[31m", "=", "x" * 700 + " ", "<!--"),
    *("&#x9d;", "&#x90;", "&#13;", "&#x202e;", "&Tab;", "&NewLine;", "&#x2028;", "&#27;[31m"),
    *("-->", "&amp;", "!", "e\u0301", "👩‍👩‍👧"),
    *('"""', "def f():\n", "https://a.b/c_d", "\u2028", "\u202e", "- [ ] ", "10. "),
)  # fmt: skip
TEXTS = st.lists(st.sampled_from(BITS), max_size=40).map("".join)


def shown(line: str) -> str:
    return ANSI.sub("", line)


def whole(text: str, width: int = 80, **how: object) -> list[str]:
    stream = MarkdownStream(width, Theme(of_pygments("monokai")), **how)
    return stream.feed(text).settled + stream.end().settled


def plain(text: str, width: int = 80, **how: object) -> list[str]:
    return [shown(line) for line in whole(text, width, **how)]


def in_pieces(text: str, sizes: random.Random, width: int, most: int, **how: object) -> list[str]:
    stream, settled, at = MarkdownStream(width, Theme(of_pygments("monokai")), **how), [], 0
    while at < len(text):
        piece = text[at : at + sizes.randint(1, most)]
        at += len(piece)
        drawn = stream.feed(piece)
        settled += drawn.settled
        assert not any("\n" in line for line in drawn.open)
    return settled + stream.end().settled


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    TEXTS,
    st.randoms(use_true_random=False),
    st.sampled_from([1, 5, 12, 40, 80]),
    st.sampled_from([0, None, 30]),
    st.booleans(),
    st.booleans(),
)
def test_what_is_settled_depends_on_the_text_not_on_its_pieces(
    text: str, sizes: random.Random, width: int, wrap: int | None, wrap_code: bool, colour: bool
) -> None:
    how = {"wrap": wrap, "wrap_code": wrap_code, "colour": colour}
    assert in_pieces(text, sizes, width, 9, **how) == whole(text, width, **how)


@pytest.mark.parametrize("name", ["README.md", "CHANGELOG.md", "docs/architecture.md", "docs/kernel.md"])
@pytest.mark.parametrize("columns", [24, pytest.param(80, marks=pytest.mark.soak)])
@pytest.mark.sample(1)
def test_long_documents_settle_alike_in_any_pieces(name: str, columns: int) -> None:
    text = (HERE / name).read_text(encoding="utf-8")[:30_000]
    assert in_pieces(text, random.Random(7), columns, 60) == whole(text, columns)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(TEXTS, st.sampled_from([20, 40, 80]))
def test_no_line_is_wider_than_the_terminal(text: str, columns: int) -> None:
    stream = MarkdownStream(columns, Theme(), wrap_code=True)
    drawn = stream.feed(text)
    fenced_or_raw = "`" in text or "~" in text or "<" in text or "    " in text or "\t" in text
    for line in [] if fenced_or_raw else [*drawn.settled, *drawn.open, *stream.end().settled]:
        assert width_of(shown(line)) <= columns, (line, columns)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(TEXTS)
def test_a_model_sends_no_control_characters_to_the_terminal(text: str) -> None:
    stream = MarkdownStream(40, Theme(of_pygments("monokai")))
    drawn = stream.feed(text)
    for line in [*drawn.settled, *drawn.open, *stream.end().settled]:
        assert all(char.isprintable() or ord(char) > 0x9F for char in shown(line)), line
        assert "\u202e" not in line


@pytest.mark.parametrize(
    "entity", ["&#x9d;", "&#x90;", "&#13;", "&#27;", "&#x202e;", "&Tab;", "&NewLine;", "&#x2028;", "&#127;", "&#x200f;"]
)
@pytest.mark.parametrize("block", ["a {} b", "# {}", "- *{}*", "| a |\n|---|\n| {} |", "[{}](https://a.b)", "> {}"])
def test_an_entity_is_no_way_round_it(entity: str, block: str) -> None:
    lines = plain(block.format(f"x{entity}52;c;ZXZpbA==") + "\n")
    assert any("52;c;" in line for line in lines)
    assert [safe(line).replace("\t", " ") for line in lines] == lines
    assert not any("\n" in line for line in lines)


def test_words_get_lost_nowhere() -> None:
    text = (HERE / "docs/architecture.md").read_text(encoding="utf-8")
    told = "".join(char for line in plain(text, 60) for char in line if char.isalnum())
    assert len(told) > 0.97 * sum(char.isalnum() for char in text)


def test_blocks_look_as_they_should() -> None:
    text = (
        "# Title\n\nSome **bold**, *slanted*, `code` and ~~gone~~.\nNext line.\n\n- one\n  - under\n- [x] done\n\n"
        "1. a\n1. b\n\n> said\n> > deeper\n\n---\n\n```py\nx = 1\n```\n\nUnder\n=====\n"
    )
    assert plain(text, 30) == [
        "# Title",
        "",
        "Some bold, slanted, code and",
        "gone.",
        "Next line.",
        "",
        "• one",
        "  ◦ under",
        "• ☑ done",
        "",
        "1. a",
        "2. b",
        "",
        "▎ said",
        "▎ ▎ deeper",
        "",
        "─" * 30,
        "",
        "```py",
        "x = 1",
        "```",
        "",
        "# Under",
    ]


def test_what_belongs_to_an_item_hangs_below_its_text() -> None:
    text = "10. ten is a long item\n    goes on\n\n    a paragraph\n   - under\n\nafter"
    assert plain(text, 18) == [
        "10. ten is a long",
        "    item",
        "    goes on",
        "",
        "    a paragraph",
        "    • under",
        "",
        "after",
    ]


def test_a_fence_in_an_item_lasts_until_it_is_closed() -> None:
    text = "1. Do this:\n   ```sh\nmake\n   ```\n2. Then *that*"
    assert plain(text) == ["1. Do this:", "   ```sh", "   make", "   ```", "2. Then that"]


def test_a_fence_that_is_never_closed_shows_its_code() -> None:
    assert plain("```\na\n\n  *b*\n# c") == ["```", "a", "", "  *b*", "# c"]


def test_a_table_is_as_wide_as_its_cells() -> None:
    text = "| Name | Qty | Of |\n|:--|--:|:-:|\n| apple | 3 | x |\n| `a|b` \\| c | 12 |\n\nafter"
    assert plain(text) == [
        "Name     Qty  Of",
        "───────  ───  ──",
        "apple      3  x",
        "a|b | c   12",
        "",
        "after",
    ]


def test_a_table_wider_than_the_terminal_breaks_its_cells() -> None:
    lines = plain("| a | b |\n|---|---|\n| one two three four | five six seven eight |\n", 24)
    assert all(width_of(line) <= 24 for line in lines)
    assert lines[2:] == ["one two      five six", "three four   seven eight"]


def test_a_table_with_too_many_columns_is_a_list() -> None:
    names = "|".join(f"column{number}" for number in range(6))
    lines = plain(f"{names}\n{'|'.join(['---'] * 6)}\n{'|'.join('abcdef')}\n", 20)
    assert lines[:2] == ["column0: a", "column1: b"]


def test_a_long_table_settles_while_it_grows() -> None:
    stream = MarkdownStream(40)
    stream.feed("| a | b |\n|---|---|\n")
    settled = [line for number in range(100) for line in stream.feed(f"| {number} | x |\n").settled]
    assert len(settled) > 90
    assert len(stream.feed("| 100 | ").open) <= 1


def test_a_long_paragraph_settles_its_upper_lines() -> None:
    stream = MarkdownStream(40)
    most, settled = 0, 0
    for _ in range(3_000):
        drawn = stream.feed("word ")
        settled += len(drawn.settled)
    most = len(drawn.open)
    assert settled > 300
    assert most < 70


@pytest.mark.sample(2)
@pytest.mark.parametrize("text", ["word ", "x", "*", "[", "`a", "日本"])
def test_a_line_without_end_takes_time_in_proportion(text: str) -> None:
    def seconds(size: int) -> float:
        stream = MarkdownStream(80)
        began = time.process_time()
        for at in range(0, size, 64):
            drawn = stream.feed((text * 64)[at % 7 : at % 7 + 64])
            if at % 4096 == 0:
                assert len(drawn.open) < 200
        stream.end()
        return time.process_time() - began

    assert seconds(1 << 16) < 10 * seconds(1 << 14)  # four times the text: 16 if it were quadratic


@pytest.mark.parametrize(
    "piece", ["[", "*a ", "_a_", "`", "![", "<!-", "$a", "\\(", "| ", "> ", "- ", "1. ", "~~a", "&"]
)
def test_no_paragraph_takes_long(piece: str) -> None:
    """A paragraph is read anew for each picture: its worst case has to be cheap."""
    text = (piece * 2_000)[:2_000]
    stream = MarkdownStream(80)
    began = time.process_time()
    assert stream.feed(text).open is not None
    assert time.process_time() - began < 0.5 * slowness()


@pytest.mark.parametrize("piece", ["\\(\n", "\\[\n", "\\(a ", "\\[a\n", "`\n", "[\n", "*a\n", "$a\n"])
def test_what_is_opened_on_every_line_and_never_closed_takes_no_long(piece: str) -> None:
    stream = MarkdownStream(80)
    began = time.process_time()
    for _ in range(1_200):
        stream.feed(piece)
    stream.end()
    assert time.process_time() - began < 1.5 * slowness()


def test_mathematics_stays_as_it_was_written() -> None:
    assert plain("a \\(x_1*y_2*\\) b \\[\\frac*1*\\\\2\\] \\(\\) \\(*c*\n") == [
        "a \\(x_1*y_2*\\) b \\[\\frac*1*\\\\2\\] () (c"
    ]


def test_code_keeps_its_colours_over_lines() -> None:
    lines = whole('```python\nx = """a\nb\n"""\n# c\n```\n')
    assert lines[2].startswith("\x1b[")  # still in the string
    assert shown(lines[2]) == "b"
    assert shown(lines[4]) == "# c"


@pytest.mark.parametrize(
    "language", ["python", "js", "yaml", "json", "bash", "html", "c++", "rust", "diff", "sql", "ruby"]
)
def test_code_stays_as_it_was_written(language: str) -> None:
    code = [
        "a = {'b': [1, 2]}  # c",
        "",
        "  <b x='1'>&amp;</b>",
        "- - 'unclosed",
        "/* x",
        "*/ <<EOF",
        'def f(x): return "',
        "EOF",
    ]
    assert plain("\n".join([f"```{language}", *code, "```"]))[1:-1] == code


def test_links_show_where_they_lead() -> None:
    text = "[here](https://a.b/c) <https://d.e> [x](#y)"
    assert plain(text) == ["here (https://a.b/c) https://d.e x"]
    hidden = MarkdownStream(80, Theme(links=True))
    assert hidden.feed("[here](https://a.b/c)\n\n").settled == [
        "\x1b]8;;https://a.b/c\x1b\\\x1b[4mhere\x1b[0m\x1b]8;;\x1b\\"
    ]


def test_an_address_that_is_no_web_page_is_not_put_behind_a_text() -> None:
    stream = MarkdownStream(80, Theme(links=True))
    assert [shown(line) for line in stream.feed("[run](file:///bin/x)\n\n").settled] == ["run (file:///bin/x)"]


def test_without_colour_the_text_is_as_it_was_written() -> None:
    text = "# A *b*\n\n| x |\n|---|\n\x1b[31mred\x07\n```py\n  x\n```"
    assert whole(text, 10, colour=False) == [
        "# A *b*",
        "",
        "| x |",
        "|---|",
        "\\x1b[31mred\\x07",
        "```py",
        "  x",
        "```",
    ]


def test_without_wrapping_a_paragraph_is_one_line() -> None:
    text = "- " + "word " * 1_000
    assert plain(text, 40, wrap=None) == ["• " + ("word " * 1_000).rstrip()]


def test_half_a_mark_is_not_drawn() -> None:
    stream = MarkdownStream(80)
    for text, looks in (
        ("Say **bo", ["Say bo"]),
        ("ld** and `co", ["Say bold and co"]),
        ("de` and [li", ["Say bold and code and [li"]),
        ("nk](http://a", ["Say bold and code and link"]),
        (")\n\n`", ["Say bold and code and link (http://a)"]),
        ("``", []),
        ("py\nx", ["", "```py", "x"]),
    ):
        drawn = stream.feed(text)
        assert [shown(line) for line in [*drawn.settled, *drawn.open]] == looks, text


def test_resizing_changes_what_comes_not_what_was_settled() -> None:
    stream = MarkdownStream(20)
    first = stream.feed("one two three four five six\n\nseven eight nine ten ").settled
    stream.resize(11)
    rest = stream.end().settled
    assert [shown(line) for line in first] == ["one two three four", "five six"]
    assert rest == ["", "seven eight", "nine ten"]


def test_the_open_block_grows_without_jumping() -> None:
    """Each picture of plain text begins with the one before: nothing that was drawn moves."""
    text = "The quick brown fox jumps over the lazy dog, and then it sleeps for a while in the sun."
    stream = MarkdownStream(30)
    pictures = [[shown(line) for line in stream.feed(char).open] for char in text]
    for before, after in pairwise(pictures):
        assert after[: max(len(before) - 1, 0)] == before[: max(len(before) - 1, 0)]


def test_what_is_drawn_seldom_jumps() -> None:
    """At 40 columns, 2,000 pictures of a page full of tables: all but a few only add to the one before."""
    text = (HERE / "docs/tools.md").read_text(encoding="utf-8")[:6_000]
    stream = MarkdownStream(40)
    before: list[str] = []
    jumps = 0
    for at in range(0, len(text), 3):
        drawn = stream.feed(text[at : at + 3])
        after = [shown(line) for line in drawn.settled + drawn.open]
        jumps += after[: len(before) - 1] != before[:-1] if before else 0
        before = [shown(line) for line in drawn.open]
    assert jumps < 20


def test_a_row_of_a_table_is_shown_when_it_is_complete() -> None:
    stream = MarkdownStream(40)
    assert stream.feed("| a | b |").open == []
    assert [shown(line) for line in stream.feed("\n|---|---|\n| 1 | `x").open] == ["a  b", "─  ─"]
    assert stream.feed("` |\n").open[2] == "1  x"
