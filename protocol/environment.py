"""Environment variables that configure Callboard: `CALLBOARD_<KEY>`, then Loki's `LOKI_<KEY>`.

An empty variable counts as not set.
"""

from __future__ import annotations

from collections.abc import Mapping

PREFIXES = ("CALLBOARD_", "LOKI_")
"""Prefixes of names; of two variables for one key the first is used."""


def names_of(key: str) -> tuple[str, ...]:
    """Return the variables of a key: `rag_top_k` as `CALLBOARD_RAG_TOP_K` and `LOKI_RAG_TOP_K`."""
    return tuple(f"{prefix}{key.upper()}" for prefix in PREFIXES)


def variable_value(key: str, environ: Mapping[str, str]) -> tuple[str, str]:
    """Return the variable that sets a key, and its text; two empty texts if none is set."""
    for name in names_of(key):
        if text := environ.get(name, ""):
            return name, text
    return "", ""
