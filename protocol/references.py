"""`${NAME}`, `${NAME:-default}` and `{{NAME}}` in the values of files: secrets, and what differs between machines.

`${NAME}` stands for the environment's NAME; as in a shell, the default stands in for a name that is unset or empty.
`${env:NAME}` is what other programs' files call it. `{{NAME}}` stands for a secret: of the vault, else of the
environment. Where only `{{NAME}}` is a reference, as in the variables of agents, `with_secrets` replaces it and nothing
else; where secrets are put in later, `of_environment` replaces the rest.

What a name stands for is put in as it is and never looked through again.
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


_NAMED = r"\{\{\s*(?P<secret>[A-Za-z_][A-Za-z0-9_-]*)\s*\}\}"
_SET = r"\$\{(?:env:)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}"

SECRET = re.compile(_NAMED)
VARIABLE = re.compile(_SET)
REFERENCE = re.compile(f"{_SET}|{_NAMED}")

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


def is_secret_name(text: str) -> bool:
    """Whether `{{text}}` is a reference."""
    return _NAME.fullmatch(text) is not None


def with_secrets(text: str, secrets: Secrets, missing: Callable[[str], None]) -> str:
    """`text` with every `{{NAME}}` replaced; `missing(name)` gets each that stands for nothing."""

    def replaced(match: re.Match[str]) -> str:
        value = secrets.get(match[1])
        if not value:
            missing(match[1])
        return value or ""

    return SECRET.sub(replaced, text)


def of_environment(text: str, environ: Secrets, missing: Callable[[str, str], None]) -> str:
    """`text` with every `${NAME}` replaced, and every `{{NAME}}` as it is; `missing(reference, name)` as `expanded`."""

    def replaced(match: re.Match[str]) -> str:
        value = environ.get(match["name"]) or match["default"]
        if value is None:
            missing(match[0], match["name"])
        return value or ""

    return VARIABLE.sub(replaced, text)


def expanded(text: str, environ: Secrets, missing: Callable[[str, str], None], secrets: Secrets | None = None) -> str:
    """`text` with its references replaced; `missing(reference, name)` gets each that stands for nothing.

    Args:
        environ: what `${NAME}` stands for.
        secrets: what `{{NAME}}` stands for; None for `environ`.
    """

    def replaced(match: re.Match[str]) -> str:
        name = match["name"] or match["secret"]
        if match["secret"] is not None:
            value = (environ if secrets is None else secrets).get(name) or None
        else:
            value = environ.get(name) or match["default"]
        if value is None:
            missing(match[0], name)
        return value or ""

    return REFERENCE.sub(replaced, text)
