"""The texts of the product are in tests/golden/messages.txt; see support/messages.py."""

from __future__ import annotations

import difflib

import pytest
from support.messages import GOLDEN, golden, says


def test_the_words_of_the_product_change_only_with_their_golden_file() -> None:
    written, made = GOLDEN.read_text(encoding="utf-8"), golden()
    if made != written:
        lines = difflib.unified_diff(written.splitlines(), made.splitlines(), "golden", "the code", lineterm="", n=0)
        pytest.fail("\n".join(["run `make golden` and review the difference:", *list(lines)[:40]]), pytrace=False)


def test_ids_are_unique() -> None:
    names = [line.split("  ")[0] for line in golden().splitlines()]
    assert len(names) == len(set(names))


def test_a_reference_pins_what_is_given_and_nothing_else() -> None:
    import re

    pattern = says("cli.main._unknown#2", name="bad")
    assert re.search(pattern, "There is no command 'bad'. To run")
    assert not re.search(pattern, "There is no command 'worse'. To run")
    with pytest.raises(LookupError, match="has no placeholder nme"):
        says("cli.main._unknown#2", nme="bad")
