"""Text of people and models in spans, where it is switched on: without secrets, bounded, in the conventions' shape."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import final

from ...io.redact import Redactor

VARIABLE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"

LONGEST = 32_768
"""Characters of one text."""

ENOUGH = LONGEST + 4_096
"""Characters to keep of a text that comes in pieces: a secret that the cut goes through must be there as a whole."""

_YES = ("true", "span_only", "span_and_event")
"""The variable's first meaning, and the two of its later ones that speak of spans."""


def wanted(environ: Mapping[str, str]) -> bool:
    """Whether the environment asks for content."""
    return environ.get(VARIABLE, "").strip().lower() in _YES


@final
class Content:
    """How text is recorded."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor

    def text(self, text: str) -> str:
        """A text that may be shown."""
        shown = self._redactor.text(text)
        return shown if len(shown) <= LONGEST else f"{shown[:LONGEST]}..."

    def message(self, role: str, text: str, finish_reason: str = "") -> str:
        """The text as the only message of a list, as JSON."""
        message: dict[str, object] = {"role": role, "parts": [{"type": "text", "content": self.text(text)}]}
        if role == "assistant":
            message["finish_reason"] = finish_reason or "stop"
        return json.dumps([message], ensure_ascii=False)
