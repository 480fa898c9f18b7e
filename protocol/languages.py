"""Languages of documents. Imports nothing heavy, since the command line names them in its help."""

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
"""Whose words an index reduces to their stems; `none` leaves them as they are."""
