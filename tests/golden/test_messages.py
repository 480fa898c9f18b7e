"""The golden file of messages, and the patterns that tests derive from it."""

from __future__ import annotations

import difflib
import re
from pathlib import Path

import pytest
from support import message_source, messages
from support.message_source import GOLDEN, extract_messages, format_golden
from support.messages import has_message, says, split_template

from golden.write import moved_ids

TEMPLATES = {"a.find": "No agent {agent.name!r} at {path}: {{braces}} of {len(nodes)} nodes, {other.name}."}


@pytest.fixture
def _templates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "_golden", lambda: TEMPLATES)


def test_messages_of_the_source_are_those_of_the_golden_file() -> None:
    expected = GOLDEN.read_text(encoding="utf-8").splitlines()
    actual = format_golden(extract_messages()).splitlines()
    diff = [line for line in difflib.unified_diff(expected, actual, n=0, lineterm="") if line[:1] in "+-"][2:]
    if diff:
        more = f"\n... and {len(diff) - 20} more lines" if len(diff) > 20 else ""
        pytest.fail("messages changed, run `make golden`:\n" + "\n".join(diff[:20]) + more, pytrace=False)


def test_names_of_facts_are_the_last_identifiers_of_placeholders() -> None:
    names = [name for _, name in split_template(TEMPLATES["a.find"]) if name]
    assert names == ["name", "path", "nodes", "name_2"]


@pytest.mark.usefixtures("_templates")
def test_facts_are_matched_exactly_and_other_placeholders_match_anything() -> None:
    text = "error: No agent 'writer' at /a/b/c.yaml: {braces} of 3 nodes, x."
    assert has_message(text, "a.find")
    assert has_message(text, "a.find", name="writer", nodes=3)
    assert has_message(text, "a.find", path="…/c.yaml", name_2="x")
    assert not has_message(text, "a.find", name="write")
    assert not has_message(text, "a.find", path="c.yaml")
    assert not re.search(says("a.find", nodes=4), text)


@pytest.mark.usefixtures("_templates")
def test_unknown_ids_and_facts_are_refused() -> None:
    with pytest.raises(LookupError, match=r"a\.lost"):
        says("a.lost")
    with pytest.raises(LookupError, match="nobody"):
        says("a.find", nobody="x")


def test_an_id_moves_with_an_unchanged_text_only() -> None:
    before = {"a.f": "one is lost", "a.f.2": "two are lost", "a.g": "old words here"}
    after = {"a.f": "a new first text", "a.f.2": "one is lost", "a.f.3": "two are lost", "a.g": "new words here"}
    assert moved_ids(before, after) == {"a.f": "a.f.2", "a.f.2": "a.f.3"}


def test_escapes_of_the_golden_file_are_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = {"a.f": "two\nlines, a \\n and a \u2028 separator"}
    golden = tmp_path / "messages.txt"
    golden.write_text(format_golden(written), encoding="utf-8")
    monkeypatch.setattr(message_source, "GOLDEN", golden)
    assert message_source.read_golden() == written
