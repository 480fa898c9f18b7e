"""docs/corpus.md says what tests/corpus has recorded. Needs no corpus."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from corpus.strangers import FAMILIES, recorded

sys.path.insert(0, str(Path(__file__).parent))

import corpus_table  # a script beside this file, found through the line above


def test_the_corpus_page_is_made_of_what_is_recorded() -> None:
    written = corpus_table.PAGE.read_text(encoding="utf-8")
    assert written == corpus_table.page(), "docs/corpus.md is behind tests/corpus/outcomes: run `make docs`"


@pytest.mark.parametrize("family", FAMILIES)
def test_everything_recorded_has_its_reason(family: str) -> None:
    for outcome in recorded(family):
        assert outcome.status in ("works", "needs", "cannot")
        assert bool(outcome.why) == (outcome.status != "works"), f"a reason belongs to what doesn't work: {outcome}"
