"""Ids of alternative models in one text, such as `openai:gpt-4o,claude:claude-haiku-4-5`.

The second model is asked if the first does not answer. A file may also have a list, `model: [openai:gpt-4o,
claude:claude-haiku-4-5]`. Such a text is valid wherever one model is: in a request, a session, on the command line,
in the environment.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import Meta

CASSETTE = "cassette"
"""Client name of cassettes as models (`cassette:FILE`): recorded replies, without a provider and without cost."""

_JOINED = Meta(
    description="`client:model`; of a list the first that answers.",
    extra={"joined": True},
    extra_json_schema={"x-joined": True},
)

Models: TypeAlias = Annotated[str | None, _JOINED]
"""Field of a file that may name a model, or several in the order in which they are asked."""

DefaultModels: TypeAlias = Annotated[str, _JOINED]
"""The same for a field that is empty without a model."""


def models_of(text: str) -> tuple[str, ...]:
    """Return the ids in a text, in order, each once; "" for an id that is missing between two commas.

    The path of a file with weights may contain commas: `local:/models/a,b.gguf` is one model.
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
