"""Finds tools by words: BM25 over what a server says of each of its tools.

A tool's document is its name, title and description, and `server:<name>`. Words are taken apart as programmers put
them together (`readFile`, `read_file`), and compared without case and without the `s` of a plural. Tools that share no
word with the query are not found; a query without any word finds all, in the server's order.

Source: Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

from .....protocol.mcp.model import Tool

_K1, _B = 1.5, 0.75
_WORD = re.compile(r"[^\W_]+")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_LONGEST, _ALL = 10_000, 2_000_000
"""Characters of a description, or of a query, that are looked at; and of all descriptions together."""


def search(query: str, server: str, tools: Sequence[Tool], most: int) -> list[Tool]:
    """The tools that fit best, the best first, `most` of them at most."""
    wanted = set(words(query))
    if not wanted:
        return list(tools[:most])
    longest = min(_LONGEST, _ALL // max(1, len(tools)))
    texts = (f"server:{server} {tool.name} {tool.title or ''} {tool.description or ''}" for tool in tools)
    documents = [Counter(words(text[:longest])) for text in texts]
    scores = _scores(wanted, documents)
    found = sorted((i for i, score in enumerate(scores) if score > 0), key=lambda i: -scores[i])
    return [tools[i] for i in found[:most]]


def words(text: str) -> list[str]:
    """The words of a text, as they are compared."""
    parts = _WORD.findall(_HUMP.sub(" ", text[:_LONGEST]))
    return [_singular(part.casefold()) for part in parts]


def _singular(word: str) -> str:
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


def _scores(wanted: set[str], documents: list[Counter[str]]) -> list[float]:
    count = len(documents)
    lengths = [document.total() for document in documents]
    mean = sum(lengths) / count if count else 1.0
    scores = [0.0] * count
    for word in wanted:
        holders = [i for i, document in enumerate(documents) if word in document]
        rarity = math.log(1 + (count - len(holders) + 0.5) / (len(holders) + 0.5))
        for i in holders:
            often = documents[i][word]
            scores[i] += rarity * often * (_K1 + 1) / (often + _K1 * (1 - _B + _B * lengths[i] / mean))
    return scores
