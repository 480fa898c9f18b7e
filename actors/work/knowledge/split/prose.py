"""Texts of people: by paragraphs, then items of lists, then sentences, then words."""

from __future__ import annotations

import re

from .cutter import Level

PARAGRAPHS = Level(0.3, re.compile(r"(\n[ \t]*\n)"))
ITEMS = Level(0.4, re.compile(r"(\n)(?=[ \t]*(?:[-*+•]|\d+[.)])[ \t])"))
SENTENCES = Level(0.4, re.compile(r"""([.!?…]["'”’»)\]]*\s+|[。！？])"""))
LINES = Level(0.5, re.compile(r"(\n)"))
CLAUSES = Level(0.5, re.compile(r"([,;:]\s+|[、，；：])"))
WORDS = Level(0.5, re.compile(r"(\s+)"))

LEVELS = (PARAGRAPHS, ITEMS, SENTENCES, LINES, CLAUSES, WORDS)
