"""Languages of documents. Imports nothing heavy, because the command line lists them in its help."""

from __future__ import annotations

from typing import Literal, TypeAlias

Language: TypeAlias = Literal[
    "ar",
    "da",
    "de",
    "el",
    "en",
    "es",
    "fi",
    "fr",
    "hu",
    "it",
    "nl",
    "no",
    "pt",
    "ro",
    "ru",
    "sv",
    "ta",
    "tr",
    "none",
]
"""Language whose words an index stems; `none` leaves words unchanged."""
