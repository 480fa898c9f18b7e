"""The code of an answer alone: what stands between its fences."""

from __future__ import annotations

import re

import msgspec

from ...protocol.outcome import Outcome
from ..render.result import TextResult

_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})(.*)$")


def code_of(text: str) -> str:
    """The contents of the fenced blocks of a Markdown text, one after the other; the whole text if there is none.

    A block that does not end (the reply was cut off) goes to the end. Models that are told to answer with code alone
    often leave the fences out.
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
    """Writes the code of the answer."""

    def finish(self, outcome: Outcome) -> None:
        """As for a text; what is no code is left out."""
        super().finish(msgspec.structs.replace(outcome, output=code_of(outcome.output)))
