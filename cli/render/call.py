"""Model requests and replies as terminal lines, with control characters escaped and styled headings."""

from __future__ import annotations

from ...actors.views.call_text import CallPart, head, reply_parts, request_parts
from ...protocol.model_calls import ModelCallDetail
from .text import one_line, paint, safe


def call_lines(call: ModelCallDetail, part: str | None = None, *, coloured: bool = False) -> list[str]:
    """Return the lines of a call.

    Args:
        part: `request` or `reply` selects one part; None selects both.
        coloured: True styles the headings.
    """

    def styled(text: str, style: str) -> str:
        return paint(text, style) if coloured else text

    parts: list[CallPart] = []
    if part != "reply":
        parts += request_parts(call)
    if part != "request":
        parts += reply_parts(call)
    lines = [styled(one_line(head(call), 200), "dim")]
    for each in parts:
        title = styled(f"--- {one_line(each.title, 100)} ---", "error" if each.failed else "title")
        lines += ["", title, *safe(each.text.removesuffix("\n")).split("\n")]
    return lines
