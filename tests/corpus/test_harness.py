"""The corpus harness itself: it skips, compares and records as strangers.py says."""

from __future__ import annotations

from pathlib import Path

import pytest
from corpus import strangers
from corpus.strangers import WORKS, attempts, cannot, check, corpus, needs, recorded


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A corpus with one family, and outcomes of its own."""
    (tmp_path / "chatdev").mkdir()
    (tmp_path / "outcomes").mkdir()
    monkeypatch.setattr(strangers, "OUTCOMES", tmp_path / "outcomes")
    monkeypatch.setenv("CALLBOARD_CORPUS", str(tmp_path))
    monkeypatch.setenv("CALLBOARD_CORPUS_RECORD", "1")
    check("chatdev", "b.yaml", "validate", WORKS)
    check("chatdev", "a.yaml", "run", needs("a key"))
    monkeypatch.delenv("CALLBOARD_CORPUS_RECORD")
    return tmp_path


def test_a_family_that_is_not_there_skips(elsewhere: Path) -> None:
    assert corpus("chatdev") == elsewhere / "chatdev"
    with pytest.raises(pytest.skip.Exception, match="no directory with coyote"):
        corpus("coyote")


def test_what_was_recorded_is_tried_and_so_is_what_is_new(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [("c.yaml", "validate strictly")]
    assert attempts("chatdev", lambda _: found, what="validate") == [("b.yaml", "validate"), *found]
    monkeypatch.delenv("CALLBOARD_CORPUS")
    assert attempts("chatdev", lambda _: found, what="validate") == [("b.yaml", "validate")]


def test_the_same_passes_and_another_fails(elsewhere: Path) -> None:
    check("chatdev", "b.yaml", "validate", WORKS)
    with pytest.raises(pytest.fail.Exception, match="seen: cannot explode"):
        check("chatdev", "b.yaml", "validate", cannot("explode"))
    with pytest.raises(pytest.fail.Exception, match="nothing is recorded"):
        check("chatdev", "c.yaml", "validate", WORKS)


def test_a_machine_may_have_more_than_the_one_that_recorded_or_less(elsewhere: Path) -> None:
    check("chatdev", "a.yaml", "run", WORKS)
    with pytest.raises(pytest.skip.Exception, match="needs the program jira"):
        check("chatdev", "b.yaml", "validate", needs("the program jira"))


def test_recording_again_replaces(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLBOARD_CORPUS_RECORD", "1")
    check("chatdev", "b.yaml", "validate", cannot("explode"))
    assert [(outcome.file, outcome.status) for outcome in recorded("chatdev")] == [
        ("a.yaml", "needs"),
        ("b.yaml", "cannot"),
    ]
