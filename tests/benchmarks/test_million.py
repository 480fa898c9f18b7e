"""A knowledge base of a million chunks fits into an ordinary machine, opens at once, and answers."""

from __future__ import annotations

from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
CHUNKS = 1_000_000


@pytest.mark.soak
def test_a_million_chunks_are_built_opened_and_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from harness import Contender

    figures = {}
    with Contender("callboard", "knowledge_callboard") as ours:
        for case in (
            "build",
            "peak",
            "disk",
            "reopen",
            "hybrid_p50",
            "hybrid_p95",
            "recall",
            "memory",
            "again_embedded",
        ):
            figures[case] = ours.measure(case, CHUNKS)
            print(f"{case:16}{figures[case]:12.1f}", flush=True)
    assert figures["build"] < 5 * 1_000  # CPU seconds
    assert figures["peak"] < 12_000  # MB, with all texts and vectors of the library that is built from
    assert figures["reopen"] < 5 * 200  # milliseconds
    assert figures["hybrid_p95"] < 5 * 50  # milliseconds
    assert figures["recall"] > 70  # per cent; the graph of vectors is as wide as that of a hundred thousand
    assert figures["memory"] < 4_000  # MB
    assert figures["again_embedded"] == 1  # per cent
