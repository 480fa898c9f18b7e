"""What the built-in families of tools (`todo__*`, `agent__*`, `user__*`) have in common.

Models are careless with types: a list comes as its JSON text, a number in quotes. The schemas here admit that, and the
readers below make one value of it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from ....protocol.errors import ToolFailed
from ..tools.tool import TIMEOUT, Arguments, Json, Tool, ToolSpec

if TYPE_CHECKING:
    from ....supervisors import Actor

Schema = dict[str, Json]


def text(description: str) -> Schema:
    """Schema of a text."""
    return {"type": "string", "description": description}


def number(description: str) -> Schema:
    """Schema of a whole number, which may be written in quotes."""
    return {"anyOf": [{"type": "integer"}, {"type": "string"}], "description": description}


def texts(description: str) -> Schema:
    """Schema of a list of texts, which may be the JSON text of one."""
    return {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "string"}], "description": description}


def family_tool(
    name: str,
    description: str,
    run: Callable[[Actor, Arguments], Awaitable[Json]],
    required: Mapping[str, Schema] | None = None,
    optional: Mapping[str, Schema] | None = None,
    *,
    waits: bool = False,
) -> Tool:
    """A tool of a built-in family.

    Args:
        waits: its calls wait for people or other agents: they have no time limit, and run beside those that come after.
    """
    required = required or {}
    parameters = {"type": "object", "properties": {**required, **(optional or {})}, "required": list(required)}
    return Tool(
        spec=ToolSpec(name=name, description=description, parameters=parameters),
        run=run,
        origin="family",
        timeout=None if waits else TIMEOUT,
        ordered=not waits,
    )


def read_texts(value: Json, name: str) -> list[str]:
    """A list of texts, given as such or as its JSON text; numbers in it become texts.

    Raises:
        ToolFailed: it is something else.
    """
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = msgspec.json.decode(value)
        except msgspec.DecodeError as error:
            raise ToolFailed(f"'{name}' is no list: it begins like one, but is not JSON ({error})") from None
    if not isinstance(value, list) or not all(isinstance(item, str | int | float) for item in value):
        raise ToolFailed(f'\'{name}\' has to be a list of texts, such as ["one", "two"]')
    return [str(item) for item in value]


def whole_number(value: Json) -> int | None:
    """A whole number, given as such or in quotes; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, float) and not value.is_integer():
        return None
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return None


def refused(why: str, **more: Any) -> dict[str, Json]:
    """The result of a call that could not do what it was asked for."""
    return {"status": "error", "message": why, **more}
