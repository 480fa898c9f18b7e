"""`${NAME}`, `${NAME:-default}` and `{{NAME}}` in the values of files: secrets, and what differs between machines.

Where only `{{NAME}}` is a reference, as in the variables of agents, `with_secrets` replaces it and nothing else.

As in a shell, the default stands in for a name that is unset or empty. `${env:NAME}` is what other programs' files
call `${NAME}`. What a name stands for is put in as it is and never looked through again.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Protocol


class Secrets(Protocol):
    """Where the names are looked up: the environment (any mapping will do), or a vault."""

    def get(self, name: str, /) -> str | None:
        """What the name stands for; None where it is unknown."""
        ...


REFERENCE = re.compile(
    r"\$\{(?:env:)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}"
    r"|\{\{\s*(?P<secret>[A-Za-z_][A-Za-z0-9_]*)\s*\}\}"
)

SECRET = re.compile(r"\{\{\s*([A-Za-z_][A-Za-z0-9_]*)\s*\}\}")


def with_secrets(text: str, secrets: Secrets, missing: Callable[[str], None]) -> str:
    """`text` with every `{{NAME}}` replaced; `missing(name)` gets each that stands for nothing."""

    def replaced(match: re.Match[str]) -> str:
        value = secrets.get(match[1])
        if not value:
            missing(match[1])
        return value or ""

    return SECRET.sub(replaced, text)


def expanded(text: str, secrets: Secrets, missing: Callable[[str, str], None]) -> str:
    """`text` with its references replaced; `missing(reference, name)` gets each that stands for nothing."""

    def replaced(match: re.Match[str]) -> str:
        name = match["name"] or match["secret"]
        value = secrets.get(name) or match["default"]
        if value is None:
            missing(match[0], name)
        return value or ""

    return REFERENCE.sub(replaced, text)
