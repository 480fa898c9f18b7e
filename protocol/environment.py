"""Variables of the environment that say something to Callboard: `CALLBOARD_<KEY>`, and Loki's `LOKI_<KEY>` after it.

A variable that is empty counts as not set.
"""

from __future__ import annotations

from collections.abc import Mapping

PREFIXES = ("CALLBOARD_", "LOKI_")
"""What names begin with; of two variables for one key the first counts."""


def names_of(key: str) -> tuple[str, ...]:
    """The variables that may hold a key: `rag_top_k` as `CALLBOARD_RAG_TOP_K` and `LOKI_RAG_TOP_K`."""
    return tuple(f"{prefix}{key.upper()}" for prefix in PREFIXES)


def said(key: str, environ: Mapping[str, str]) -> tuple[str, str]:
    """The variable that counts for a key and its text; two empty texts if none is set."""
    for name in names_of(key):
        if text := environ.get(name, ""):
            return name, text
    return "", ""
