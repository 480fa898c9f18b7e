"""The cassette of `callboard demo` is what tests/packaging/demo_cassette.py records."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from demo_cassette import FILE, PRICED_AS, recorded

from callboard.cli.commands import demo
from callboard.protocol.cassette import AnyLine, Head, ReplyLine, read_cassette

LARGEST = 300_000
"""Bytes that it may have."""


def replies(lines: list[AnyLine]) -> list[Any]:
    """The replies of each agent, in order."""
    found = [(line.at, msgspec.to_builtins(line.reply)) for line in lines if isinstance(line, ReplyLine)]
    for _, reply in found:
        reply.pop("usage")  # paths of this machine are longer or shorter
    return sorted(found, key=lambda each: each[0])


async def test_recorded_again_it_has_the_same_replies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert FILE.stat().st_size <= LARGEST
    kept = read_cassette(FILE.read_text(), FILE.name)
    assert replies(kept) == replies(await recorded(tmp_path))


def test_its_tokens_have_the_price_that_the_demo_names() -> None:
    head = read_cassette(FILE.read_text(), FILE.name)[0]
    assert isinstance(head, Head)
    assert head.model == PRICED_AS
    assert demo.PRICED_AS.lower().replace(" ", "-").replace(".", "-") in head.model
