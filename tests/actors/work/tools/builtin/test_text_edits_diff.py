"""Diffs fit exactly or are refused, with what stands in the file."""

from __future__ import annotations

import contextlib
import difflib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.messages import has_message, says

from callboard.actors.work.tools.builtin.text_edits import DiffError, apply, parse

TEXT = "one\ntwo\nthree\nfour\nfive\n"


def patched(text: str, *lines: str) -> str:
    return apply(text, parse("\n".join(lines) + "\n")).text


def test_a_hunk_replaces_its_lines() -> None:
    assert patched(TEXT, "--- a/x", "+++ b/x", "@@ -1,3 +1,3 @@", " one", "-two", "+TWO", " three") == TEXT.replace(
        "two", "TWO"
    )


def test_what_came_and_went_is_counted() -> None:
    applied = apply(TEXT, parse("@@ -1,3 +1,4 @@\n one\n-two\n+a\n+b\n three\n"))
    assert (applied.added, applied.removed, applied.moved) == (2, 1, ())


@pytest.mark.parametrize("header", ["@@ -40,3 +40,3 @@", "@@", "@@ ... @@", "@@ -1,99 +1,7 @@ def f():"])
def test_lines_that_stand_at_one_other_place_are_found_there(header: str) -> None:
    assert patched(TEXT, header, " three", "-four", "+FOUR") == TEXT.replace("four", "FOUR")


def test_a_hunk_that_stood_elsewhere_is_told_and_moves_those_after_it() -> None:
    text = "new\nnew\n" + "x\n" + "a\nb\n" * 3
    # Written before two lines were added at the top: what it calls line 1 and line 4 is line 3 and line 6 now.
    applied = apply(text, parse("@@ -1 +1 @@\n-x\n+y\n@@ -4,2 +4,2 @@\n a\n-b\n+c\n"))
    assert applied.text == "new\nnew\ny\na\nb\na\nc\na\nb\n"
    assert applied.moved == ((1, 3), (2, 6))


def test_of_several_places_the_stated_one_is_taken() -> None:
    assert patched("a\nb\na\nb\na\nb\n", "@@ -3,2 +3,2 @@", " a", "-b", "+c") == "a\nb\na\nc\na\nb\n"


def test_several_places_and_none_of_them_the_stated_one_is_refused() -> None:
    with pytest.raises(DiffError, match=says("work.tools.builtin.text_edits._position.2", number=1, where="1, 3, 5")):
        patched("a\nb\na\nb\na\nb\n", "@@ -4,2 +4,2 @@", " a", "-b", "+c")


def test_the_line_that_does_not_fit_is_told_with_what_stands_there() -> None:
    with pytest.raises(DiffError) as caught:
        patched(TEXT, "@@ -2,3 +2,3 @@", " two", " thre", "-four", "+FOUR")
    said = str(caught.value)
    assert has_message(
        said, "work.tools.builtin.text_edits._does_not_fit.3", number=1, wrong="'thre'", at=3, stands="'three'"
    )
    assert "     3\tthree" in said


def test_a_hunk_beyond_the_end_is_told() -> None:
    with pytest.raises(DiffError, match=says("work.tools.builtin.text_edits._does_not_fit.3", wrong="'six'", at=6)):
        patched(TEXT, "@@ -5,2 +5,1 @@", " five", "-six")


def test_a_hunk_of_another_file_is_told() -> None:
    with pytest.raises(DiffError, match=says("work.tools.builtin.text_edits._does_not_fit", begins="'alpha'…")):
        patched(TEXT, "@@ -3,2 +3,1 @@", " alpha", "-beta")


def test_hunks_are_applied_in_order_and_the_second_may_fail_the_whole() -> None:
    two = ["@@ -1,1 +1,1 @@", "-one", "+ONE", "@@ -5,1 +5,1 @@", "-five", "+FIVE"]
    assert patched(TEXT, *two) == "ONE\ntwo\nthree\nfour\nFIVE\n"
    with pytest.raises(DiffError, match=says("work.tools.builtin.text_edits._does_not_fit", number=2)):
        patched(TEXT, *two[:4], "-six", "+SIX")


def test_lines_are_added_where_the_header_says_when_there_is_no_context() -> None:
    assert patched(TEXT, "@@ -2,0 +3,1 @@", "+new") == "one\ntwo\nnew\nthree\nfour\nfive\n"
    assert patched("", "--- /dev/null", "+++ b/x", "@@ -0,0 +1,2 @@", "+a", "+b") == "a\nb\n"
    with pytest.raises(DiffError, match=says("work.tools.builtin.text_edits._hunk.4")):
        patched(TEXT, "@@", "+new")


def test_empty_context_lines_may_have_lost_their_space() -> None:
    assert patched("a\n\nb\n", "@@ -1,3 +1,3 @@", " a", "", "-b", "+c") == "a\n\nc\n"


def test_empty_lines_after_the_hunk_are_no_context() -> None:
    assert patched("a\nb\n", "@@ -2,1 +2,1 @@", "-b", "+c", "", "") == "a\nc\n"


def test_a_missing_newline_at_the_end_comes_and_goes_as_the_diff_says() -> None:
    none = "\\ No newline at end of file"
    assert patched("a\nb", "@@ -2 +2 @@", "-b", none, "+c") == "a\nc\n"
    assert patched("a\nb\n", "@@ -2 +2 @@", "-b", "+c", none) == "a\nc"
    assert patched("a\nb", "@@ -2 +2 @@", "-b", none, "+c", none) == "a\nc"
    assert patched("a\nb", "@@ -1 +1 @@", "-a", "+c") == "c\nb"
    assert patched("a\nb", "@@ -2 +2 @@", "-b", none, "+b") == "a\nb\n"


def test_a_file_with_crlf_keeps_it() -> None:
    assert patched("a\r\nb\r\nc\r\n", "@@ -1,3 +1,4 @@", " a", "-b", "+B", "+new", " c") == "a\r\nB\r\nnew\r\nc\r\n"


@pytest.mark.parametrize(
    ("diff", "problem"),
    [
        ("just words", says("work.tools.builtin.text_edits.parse")),
        ("@@ -1 +1 @@\none\n", says("work.tools.builtin.text_edits._hunk.2")),
        ("@@ -1 +1 @@\n one\n", says("work.tools.builtin.text_edits._hunk.3")),
        (
            "--- a\n+++ a\n@@ -1 +1 @@\n-one\n+1\n--- b\n+++ b\n@@ -1 +1 @@\n-x\n+y\n",
            says("work.tools.builtin.text_edits.parse.2"),
        ),
    ],
)
def test_what_is_no_diff_is_told(diff: str, problem: str) -> None:
    with pytest.raises(DiffError, match=problem):
        parse(diff)


_line = st.sampled_from(["a", "b", "c", "", "  x", "-", "+", "@", "\\", "é"])
_lines = st.lists(_line, max_size=12)


@given(_lines, _lines, st.integers(0, 3))
def test_every_diff_that_difflib_makes_is_applied_exactly(old: list[str], new: list[str], context: int) -> None:
    made = list(difflib.unified_diff(old, new, "a", "b", lineterm="", n=context))
    if not made:
        return
    before = "".join(line + "\n" for line in old)
    after = "".join(line + "\n" for line in new)
    assert apply(before, parse("\n".join(made) + "\n")).text == after


@given(_lines, _lines, st.lists(_line, max_size=3))
def test_lines_put_before_a_diff_move_it_but_never_mangle(old: list[str], new: list[str], more: list[str]) -> None:
    """With other lines before it a diff is applied there, at an equal place, or refused: never in between."""
    made = list(difflib.unified_diff(old, new, "a", "b", lineterm="", n=1))
    if not made:
        return
    hunks = parse("\n".join(made) + "\n")
    text = "".join(line + "\n" for line in [*more, *old])
    try:
        applied = apply(text, hunks)
    except DiffError:
        return
    assert applied.text.count("\n") == text.count("\n") + applied.added - applied.removed


@given(st.text("@-+ ab\\\n,0123456789\r", max_size=80), st.text("ab\n\r", max_size=20))
def test_no_text_crashes_it(diff: str, text: str) -> None:
    with contextlib.suppress(DiffError):
        apply(text, parse(diff))
