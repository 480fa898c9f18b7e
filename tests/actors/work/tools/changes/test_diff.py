"""Unified diffs, made: right, short, bounded."""

from __future__ import annotations

import random
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cpu_time import slowness
from support.messages import fragment

from callboard.actors.work.tools.builtin.text_edits import parse
from callboard.actors.work.tools.builtin.writing import patched
from callboard.actors.work.tools.changes.diff import unified

TEXTS = st.lists(st.sampled_from((b"a", b"b", b"c", b"", b"-x", b"+y", b"@@ z")), max_size=12).map(b"\n".join)


@given(TEXTS, TEXTS, st.booleans(), st.booleans())
def test_what_is_made_can_be_applied(before: bytes, after: bytes, ends: bool, then_ends: bool) -> None:
    before, after = before + b"\n" * ends, after + b"\n" * then_ends
    diff = unified(before, after, "x")
    if before == after:
        assert (diff.text, diff.added, diff.removed) == ("", 0, 0)
        return
    found, words = patched(parse(diff.text.split("\n", 2)[2]), before)
    assert found == after
    assert f", +{diff.added} -{diff.removed} lines" in words


def test_git_applies_it(tmp_path: Path) -> None:
    draw = random.Random(7)
    old = [b"line %d\n" % draw.randrange(400) for _ in range(3_000)]
    new = list(old)
    for _ in range(60):
        at = draw.randrange(len(new))
        new[at : at + draw.randrange(4)] = [b"new %d\n" % draw.randrange(400) for _ in range(draw.randrange(4))]
    diff = unified(b"".join(old), b"".join(new), "x", characters=10**9, lines=10**9)
    (tmp_path / "x").write_bytes(b"".join(old))
    subprocess.run(["git", "apply", "-"], input=diff.text.encode(), cwd=tmp_path, check=True)
    assert (tmp_path / "x").read_bytes() == b"".join(new)
    assert (diff.added or 0) < 250, "few lines have changed"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([b"same\n"] * 60_000, [b"same\n"] * 59_000 + [b"other\n"] * 1_000),
        ([b"%d\n" % number for number in range(60_000)], [b"%d\n" % number for number in range(60_000, 0, -1)]),
        ([b"a\n", b"b\n"] * 20_000, [b"b\n", b"b\n", b"a\n"] * 15_000),
    ],
)
def test_no_texts_take_long(before: list[bytes], after: list[bytes]) -> None:
    begun = time.process_time()
    diff = unified(b"".join(before), b"".join(after), "x")
    assert time.process_time() - begun < 5 * slowness()
    assert len(diff.text.splitlines()) < 2_010
    assert diff.note.endswith(fragment("work.tools.changes.diff._bounded"))


def test_a_binary_file_is_named_as_such_and_other_bytes_are_spelled_out() -> None:
    diff = unified(b"\0\1", None, "x.bin")
    assert (diff.text, diff.added) == ("Binary files a/x.bin and /dev/null differ (2 bytes and 0 bytes)\n", None)
    assert unified(b"caf\xe9\n", "caf\u00e9\n".encode(), "x").text.endswith("-caf\\xe9\n+caf\u00e9\n")


def test_long_lines_and_odd_names_are_bounded() -> None:
    diff = unified(None, b"x" * 5_000, "a\nb")
    assert diff.text.splitlines()[1] == "+++ b/a\\nb"
    assert diff.text.splitlines()[3].endswith("x[... 4000 characters left out ...]")
    assert unified(None, b"", "x").text == "--- /dev/null\n+++ b/x\n"
