"""Environment variables and secrets as values: variables that set a key, and references in the values of files.

`CALLBOARD_<KEY>` sets a key of the settings; without it, Loki's `LOKI_<KEY>` does. An empty variable counts as not set.

A value in a file may refer to a variable or a secret: `${NAME}`, `${NAME:-default}`, `{{NAME}}`. `${NAME}` is replaced
by the environment variable NAME; as in a shell, the default replaces an unset or empty variable. `${env:NAME}` is the
spelling in other programs' files. `{{NAME}}` is replaced by a secret of the vault, else of the environment. If only
`{{NAME}}` is a reference, as in the variables of agents, `with_secrets` replaces it and nothing else. If secrets are
inserted later, `of_environment` replaces the other references.

Inserted values are never scanned for references again. The module imports no msgspec, because setup and help use it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Protocol

PREFIXES = ("CALLBOARD_", "LOKI_")
"""Prefixes of names; of two variables for one key the first is used."""


def names_of(key: str) -> tuple[str, ...]:
    """Return the variables of a key: `rag_top_k` as `CALLBOARD_RAG_TOP_K` and `LOKI_RAG_TOP_K`."""
    return tuple(f"{prefix}{key.upper()}" for prefix in PREFIXES)


def variable_value(key: str, environ: Mapping[str, str]) -> tuple[str, str]:
    """Return the variable that sets a key, and its text; two empty texts if none is set."""
    for name in names_of(key):
        if text := environ.get(name, ""):
            return name, text
    return "", ""


class Secrets(Protocol):
    """Source of names: the environment (any mapping), or a vault."""

    def get(self, name: str, /) -> str | None:
        """Return the value of the name; None if it is unknown."""
        ...


_NAMED = r"\{\{\s*(?P<secret>[A-Za-z_][A-Za-z0-9_-]*)\s*\}\}"
_SET = r"\$\{(?:env:)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}"

SECRET = re.compile(_NAMED)
VARIABLE = re.compile(_SET)
REFERENCE = re.compile(f"{_SET}|{_NAMED}")

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


def is_secret_name(text: str) -> bool:
    """Return whether `{{text}}` is a reference."""
    return _NAME.fullmatch(text) is not None


def with_secrets(text: str, secrets: Secrets, missing: Callable[[str], None]) -> str:
    """Return `text` with every `{{NAME}}` replaced by its value.

    For each name without a value, `missing(name)` is called, and the reference becomes an empty text.
    """

    def replaced(match: re.Match[str]) -> str:
        value = secrets.get(match[1])
        if not value:
            missing(match[1])
        return value or ""

    return SECRET.sub(replaced, text)


def of_environment(text: str, environ: Secrets, missing: Callable[[str, str], None]) -> str:
    """Return `text` with every `${NAME}` replaced, but no `{{NAME}}`; `missing(reference, name)` as in `expanded`."""

    def replaced(match: re.Match[str]) -> str:
        value = environ.get(match["name"]) or match["default"]
        if value is None:
            missing(match[0], match["name"])
        return value or ""

    return VARIABLE.sub(replaced, text)


def expanded(text: str, environ: Secrets, missing: Callable[[str, str], None], secrets: Secrets | None = None) -> str:
    """Return `text` with its references replaced.

    For each reference without a value, `missing(reference, name)` is called, and the reference becomes an empty text.

    Args:
        environ: source of `${NAME}`.
        secrets: source of `{{NAME}}`; None for `environ`.
    """

    def replaced(match: re.Match[str]) -> str:
        name = match["name"] or match["secret"]
        if match["secret"] is not None:
            value = (environ if secrets is None else secrets).get(name) or None
        else:
            # The default of `${NAME:-}` is an empty text, which is a value. Only without `:-` it is None, and the name
            # is missing.
            value = environ.get(name) or match["default"]
        if value is None:
            missing(match[0], name)
        return value or ""

    return REFERENCE.sub(replaced, text)
