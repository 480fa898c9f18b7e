"""Structured answers: a text that should be JSON of a given shape, and what is done when it is not.

1. The text itself is tried: without code fences, without a `<think>` block before it.
2. An extractor call asks the model to put the text into the shape.
3. One repair call shows it what it wrote and everything that is wrong with that.

What comes out fits the schema (JSON Schema 2020-12, or the draft that its `$schema` names). Loki 0.4.0 is content with
any JSON (`Compat.schema_is_a_hint`).
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any

from ....protocol.errors import NodeFailed
from ....protocol.json_values import NotJson, decode, decode_mended
from ...io.imports import imported
from ...io.json_schema import LIBRARY, schema_errors
from .templates import render


class ExtractionFailed(NodeFailed):
    """A text could not be brought into the shape of its `output_schema`."""


AskModel = Callable[[str, str], Awaitable[str]]
"""System prompt and user message in, the model's text out."""

_THOUGHT = re.compile(r"\A\s*<think>.*?</think>\s*", re.DOTALL)
_FENCE = re.compile(r"\A\s*```[a-zA-Z]*\s*\n(.*?)\n?\s*```\s*\Z", re.DOTALL)

EXTRACTOR = """You turn text into data. Read the text you are given and answer with one JSON value that fits this \
JSON Schema. Use only what the text says; where it says nothing, use an empty or null value that the schema allows. \
Answer with the JSON alone.

{schema}"""


def schema_hint(schema: dict[str, Any]) -> str:
    """What an llm node's prompt is told about the shape of its answer."""
    head = "Answer with one JSON value that fits this JSON Schema, and nothing else: no prose, no fences."
    return f"{head}\n\n{render(schema)}"


async def structured(text: str, schema: dict[str, Any], ask: AskModel, *, any_json: bool = False) -> Any:
    """The JSON value in `text`, asking a model for help if need be.

    Raises:
        ExtractionFailed: the help did not help.
    """
    await imported(*LIBRARY)
    shape = None if any_json else schema
    value, wrong = read_json(text, shape)
    if not wrong:
        return value
    system, question, answer = EXTRACTOR.format(schema=render(schema)), text.strip() and text, ""
    for _ in range(2):
        answer = await ask(system, question or "(the text is empty)")
        value, wrong = read_json(answer, shape)
        if not wrong:
            return value
        listed = "\n".join(f"- {error}" for error in wrong)
        question = (
            f"The text:\n{text}\n\nYour answer was:\n{answer}\n\nThat does not fit the schema:\n{listed}\n\n"
            "Answer again with corrected JSON alone."
        )
    raise ExtractionFailed(
        "Structured-output extractor failed to produce valid JSON after repair retry. "
        f"Last response:\n{answer}\nWhat is wrong with it: " + "; ".join(wrong)
    )


def read_json(text: str, schema: dict[str, Any] | None) -> tuple[Any, list[str]]:
    """The JSON value of a model's text and everything that is wrong with it (nothing, if the list is empty)."""
    bare = _THOUGHT.sub("", text)
    fenced = _FENCE.match(bare)
    if fenced:
        bare = fenced.group(1)
    try:
        value = decode_mended(decode, bare.strip())
    except NotJson as error:
        return None, [f"it is not JSON: {error}"]
    if schema is None:
        return value, []
    return value, schema_errors(value, schema)
