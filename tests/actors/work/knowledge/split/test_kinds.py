"""What each kind of document is cut by."""

from __future__ import annotations

import json
import time

import pytest
from support.cpu_time import slowness

from callboard.actors.work.knowledge.split import split
from callboard.protocol.knowledge import Chunk, Document


def chunks(text: str, kind: str, size: int, overlap: int = 0) -> list[Chunk]:
    return split(Document(source="a", text=text, kind=kind), size=size, overlap=overlap)


def texts(text: str, kind: str, size: int, overlap: int = 0) -> list[str]:
    return [chunk.text for chunk in chunks(text, kind, size, overlap)]


# --- prose ------------------------------------------------------------------------------------------------


def test_prose_is_cut_between_paragraphs_before_sentences_before_words() -> None:
    first, second = "One two three. Four five six.", "Seven eight nine. Ten eleven twelve."
    text = f"{first}\n\n{second}"
    assert texts(text, "text", 40) == [first, second]
    assert texts(first, "text", 20) == ["One two three.", "Four five six."]
    assert texts("alpha beta gamma delta", "text", 12) == ["alpha beta", "gamma delta"]


def test_a_word_longer_than_a_chunk_is_cut_anywhere() -> None:
    assert texts("abcdefghij", "text", 4) == ["abcd", "efgh", "ij"]


def test_sentences_of_languages_without_spaces_are_seen() -> None:
    assert texts("今日は晴れです。明日は雨でしょう。", "text", 10) == ["今日は晴れです。", "明日は雨でしょう。"]


def test_a_first_line_keeps_its_indentation() -> None:
    (only,) = chunks("\n\n    indented\nnot\n\n", "text", 100)
    assert only.text == "    indented\nnot"
    assert only.lines == (3, 4)


# --- Markdown ---------------------------------------------------------------------------------------------

PAGE = """\
# Guide

Intro.

## Install

Run pip.

```bash
# not a heading

pip install x
```

## Use

### First

Do this and that and more of it.

### Second ###

Then rest for a while, and see.

Other
-----

The end.
"""


def test_markdown_knows_the_headings_above_a_chunk() -> None:
    found = {chunk.heading: chunk for chunk in chunks(PAGE, "markdown", 70)}
    assert list(found) == [
        ("Guide",),
        ("Guide", "Install"),
        ("Guide", "Use", "First"),
        ("Guide", "Use", "Second"),
        ("Guide", "Other"),
    ]
    assert found["Guide", "Install"].text.startswith("## Install")
    assert found["Guide", "Install"].text.endswith("```")
    assert found["Guide", "Install"].lines == (5, 13)
    assert found["Guide", "Use", "First"].text.startswith("## Use\n\n### First")


def test_small_sections_are_joined_under_what_they_share() -> None:
    joined = chunks(PAGE, "markdown", 110)
    assert [chunk.heading for chunk in joined] == [("Guide",), ("Guide", "Use"), ("Guide", "Other")]
    assert joined[0].text.startswith("# Guide\n\nIntro.\n\n## Install")
    assert [chunk.heading for chunk in chunks(PAGE, "markdown", 1000)] == [("Guide",)]
    two = "# A\n\none\n\n# B\n\ntwo\n"
    assert [(chunk.heading, chunk.text) for chunk in chunks(two, "markdown", 100)] == [((), two.strip())]


def test_a_fenced_block_is_not_cut_at_its_empty_lines_if_there_is_another_way() -> None:
    block = "```\n" + "one two\n\n" * 8 + "```"
    text = f"Some words about what follows now.\n\n{block}\n\nAnd some words after it, to end."
    assert block in texts(text, "markdown", 110)


def test_front_matter_is_no_heading_and_a_rule_is_no_front_matter() -> None:
    (only,) = chunks("---\ntitle: x\n---\n\ntext", "markdown", 100)
    assert only.heading == ()
    assert chunks("---\n\n# A\n\ntext", "markdown", 9)[-1].heading == ("A",)


def test_a_fence_that_is_never_closed_goes_to_the_end() -> None:
    assert {chunk.heading for chunk in chunks("# A\n\n```\n" + "# b\n# c\n" * 9, "markdown", 20)} == {("A",)}


@pytest.mark.parametrize("title", ["C#", "A # b", "`code` and *more*"])
def test_titles_are_kept_as_they_are(title: str) -> None:
    assert chunks(f"## {title} ##\n\ntext", "markdown", 100)[0].heading == (title,)


# --- code -------------------------------------------------------------------------------------------------


def test_code_is_cut_between_definitions_with_what_is_attached_to_them() -> None:
    text = "import x\n\n\n@d\ndef f():\n    a = 1\n\n    return a\n\n\n# about g\ndef g():\n    return 2\n"
    assert texts(text, "code:python", 55) == [
        "import x\n\n\n@d\ndef f():\n    a = 1\n\n    return a",
        "# about g\ndef g():\n    return 2",
    ]


def test_methods_that_stand_close_are_cut_between() -> None:
    text = "class C:\n" + "".join(f"    @p\n    def m{n}(self):\n        return {n}\n" for n in range(8))
    for part in texts(text, "code:python", 100)[1:]:
        assert part.startswith("    @p\n    def m")


@pytest.mark.parametrize(
    ("language", "one"),
    [
        ("rust", "pub(crate) fn f{n}() -> u8 {{\n    {n}\n}}\n"),
        ("go", "func F{n}() int {{\n    return {n}\n}}\n"),
        ("typescript", "export async function f{n}() {{\n    return {n}\n}}\n"),
        ("bash", "do_{n}() {{\n    echo {n}\n}}\n"),
        ("sql", "CREATE TABLE t{n} (\n    a int\n);\n"),
        ("yaml", "key{n}:\n  - a: 1\n    b: 2\n"),
        ("toml", "[table{n}]\na = 1\nb = 22222222\n"),
    ],
)
def test_other_languages_are_cut_between_definitions_too(language: str, one: str) -> None:
    whole = [one.format(n=n) for n in range(10, 40)]
    heads = {part.split("\n")[0] for part in whole}
    found = texts("".join(whole), f"code:{language}", 160)
    assert len(found) > 5
    assert {part.split("\n")[0] for part in found} <= heads


def test_overlaps_of_code_are_whole_lines() -> None:
    lines = [f"    value_{n} = compute({n}, {n})" for n in range(100)]
    overlapping = texts("def f():\n" + "\n".join(lines), "code:python", 300, 80)
    assert sum(part.count("\n") + 1 for part in overlapping) > 101
    assert all(line in ("def f():", *lines) for part in overlapping for line in part.split("\n"))


# --- tables -----------------------------------------------------------------------------------------------


def test_rows_stay_whole_and_the_first_is_repeated() -> None:
    found = chunks("name,age\nann,1\nbob,2\ncid,3\n", "csv", 21)
    assert [chunk.text for chunk in found] == ["name,age\nann,1\nbob,2", "name,age\ncid,3"]
    assert [chunk.lines for chunk in found] == [(1, 3), (4, 4)]


def test_a_quoted_field_with_line_breaks_is_one_row() -> None:
    assert texts('a,b\n1,"x\ny\nz"\n2,q\n', "csv", 16) == ['a,b\n1,"x\ny\nz"', "a,b\n2,q"]


def test_a_stray_quote_does_not_swallow_the_table() -> None:
    rows = "".join(f"{n}\tx\n" for n in range(500))
    found = texts(f'a\tb\n5"\tinch\n{rows}', "tsv", 60)
    assert len(found) > 50
    assert all(part.startswith("a\tb\n") for part in found)


def test_a_wide_first_row_is_not_repeated() -> None:
    assert texts("one,two,three,four\n1,2,3,4\n", "csv", 20) == ["one,two,three,four", "1,2,3,4"]


# --- JSON -------------------------------------------------------------------------------------------------


def test_items_stay_whole_and_keys_are_the_heading() -> None:
    value = {"users": [{"name": "ann"}, {"name": "bob"}], "note": "x" * 30}
    found = chunks(json.dumps(value, indent=1), "json", 80)
    assert [chunk.heading for chunk in found] == [("users",), ("note",)]
    assert found[0].text.startswith('{\n "users": [')
    assert found[1].text == f'"note": "{"x" * 30}"\n}}'


def test_long_items_are_split_within() -> None:
    value = {"a": {"b": {"c": "word " * 20, "d": 1}}}
    assert {chunk.heading for chunk in chunks(json.dumps(value), "json", 40)} >= {("a", "b", "c"), ("a", "b", "d")}


def test_lines_of_json_are_a_list() -> None:
    assert texts('{"a": 1}\n{"a": 2}\n{"a": 3}\n', "jsonl", 18) == ['{"a": 1}\n{"a": 2}', '{"a": 3}']


def test_what_is_no_json_is_prose() -> None:
    assert texts('{"a": one two', "json", 8) == texts('{"a": one two', "text", 8)
    assert texts(", ", "json", 8) == [","]
    for depth in range(700, 1100, 10):
        assert "".join(texts("[" * depth + "]" * depth, "json", 9)) == "[" * depth + "]" * depth
    assert texts(", 1 2", "json", 8) == [", 1 2"]
    assert texts("[" * 100_000, "json", 60_000) == ["[" * 60_000, "[" * 40_000]


# --- texts that nobody wrote ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["text", "markdown", "code:python", "csv", "json"])
@pytest.mark.sample(3)
def test_long_texts_of_the_same_are_no_trouble(kind: str) -> None:
    """What takes squared time takes minutes here."""
    began = time.process_time()
    for one in ("# ", "#", " ", "\n", '"', "`", "- ", "-", ".", "a", "@a\n", "[", "{", "=\n", "\n---", "pub ", "a\n"):
        assert all(len(part) <= 1000 for part in texts(one * (20_000 // len(one)), kind, 1000, 50))
    assert time.process_time() - began < 5 * slowness()
