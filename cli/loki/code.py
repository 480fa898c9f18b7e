"""Extraction of the code in an answer: the contents of its fences."""

from __future__ import annotations

import re

import msgspec

from ...protocol.outcome import Outcome
from ..render.result import TextResult

_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})(.*)$")


def code_of(text: str) -> str:
    """Return the contents of a Markdown text's fenced blocks, one after the other; the whole text if there is none.

    A block without an end (the reply was cut off) extends to the end. Models that are asked for code alone often omit
    the fences.
    """
    blocks: list[list[str]] = []
    fence = ""
    for line in text.splitlines():
        mark = _FENCE.match(line)
        if fence:
            closes = mark is not None and mark[1].startswith(fence) and not mark[2].strip()
            if closes:
                fence = ""
            else:
                blocks[-1].append(line)
        elif mark is not None and not (mark[1][0] == "`" and "`" in mark[2]):
            fence = mark[1]
            blocks.append([])
    if not blocks:
        return text.strip("\n")
    return "\n\n".join("\n".join(lines).strip("\n") for lines in blocks)


class CodeResult(TextResult):
    """Result format that writes only the code of the answer."""

    def finish(self, outcome: Outcome) -> None:
        """Write the code as `TextResult` writes a text."""
        super().finish(msgspec.structs.replace(outcome, output=code_of(outcome.output)))
