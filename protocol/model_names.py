"""Ids of models in one text, `openai:gpt-4o,claude:claude-haiku-4-5`: the second is asked if the first does not answer.

A file may have them as a list, `model: [openai:gpt-4o, claude:claude-haiku-4-5]`, which is the same. So a text stands
for the models wherever one model may stand: in a request, a session, on the command line, in the environment.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import Meta

_JOINED = Meta(
    description="`client:model`; of a list the first that answers.",
    extra={"joined": True},
    extra_json_schema={"x-joined": True},
)

Models: TypeAlias = Annotated[str | None, _JOINED]
"""A field of a file that may name a model, or several in the order in which they are asked."""

DefaultModels: TypeAlias = Annotated[str, _JOINED]
"""The same of a field that is empty where there is none."""


def models_of(text: str) -> tuple[str, ...]:
    """The ids in a text, in order, each once; "" where one is missing between two commas.

    A file with weights may have commas in its path: `local:/models/a,b.gguf` is one model.
    """
    if "," not in text:
        return (text,)
    found: list[str] = []
    for part in text.split(","):
        if found and _goes_on(found[-1]) and ":" not in part:
            found[-1] = f"{found[-1]},{part}"
        else:
            found.append(part)
    return tuple(dict.fromkeys(name.strip() for name in found))


def _goes_on(name: str) -> bool:
    return name.lstrip().startswith("local:") and "/" in name and not name.rstrip().lower().endswith(".gguf")
