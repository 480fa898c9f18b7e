"""What the vault has handed out in this process, and how it is taken out of all that is told.

Of events before anybody hears them, of what tools return to models, of outcomes, of errors, and of all that the command
line prints and logs; `redact`, which knows other secrets as well, asks here too. The process remembers it for good,
since a client may quote its key at any time; it is the one thing here that no root owns.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

T = TypeVar("T")

PUT = "[redacted]"
SHORTEST = 8
"""Characters; what is shorter would be found in words that are no secrets."""


class Known:
    """Texts to look for, the longest first."""

    def __init__(self) -> None:
        self.texts: tuple[str, ...] = ()
        self.bytes: tuple[bytes, ...] = ()

    def add(self, secrets: Iterable[str]) -> None:
        """Look for these too, but for those below `SHORTEST`."""
        known = {*self.texts, *(secret for secret in secrets if len(secret) >= SHORTEST)}
        known |= {json.dumps(secret)[1:-1] for secret in known}  # as it stands in JSON
        self.texts = tuple(sorted(known, key=len, reverse=True))
        self.bytes = tuple(secret.encode("utf-8", "surrogatepass") for secret in self.texts)

    def hidden(self, text: str) -> str:
        """The text without them."""
        for secret in self.texts:
            if secret in text:
                text = text.replace(secret, PUT)
        return text

    def hidden_bytes(self, data: bytes) -> bytes:
        """The data without them. Costs a search for each."""
        for secret in self.bytes:
            if secret in data:
                data = data.replace(secret, PUT.encode())
        return data


_HANDED = Known()


def handed_out(*values: str) -> None:
    """The vault has given these to something in this process. Those below `SHORTEST` can't be told from other words."""
    for value in values:
        lines = [
            line.strip() for line in value.splitlines() if not line.startswith("-----")
        ]  # a PEM file, line by line
        _HANDED.add((value, quote(value, safe=""), *(lines if len(lines) > 1 else ())))


def anything_handed_out() -> bool:
    """Whether there is anything to hide."""
    return bool(_HANDED.texts)


def hidden(text: str) -> str:
    """The text without what the vault has handed out."""
    return _HANDED.hidden(text)


def hidden_bytes(data: bytes) -> bytes:
    """The data without what the vault has handed out."""
    return _HANDED.hidden_bytes(data)


def without_secrets(value: T) -> T:
    """The value without what the vault has handed out, however deep it stands: in texts of structs, mappings and lists.

    The same object if nothing of it is in there.
    """
    return _without(value) if _HANDED.texts else value


def hide_in(error: BaseException) -> None:
    """Take what the vault has handed out out of an error's text, before anybody reads it."""
    if not _HANDED.texts:
        return
    error.args = _without(error.args)
    for name, value in vars(error).items():
        if isinstance(value, str):
            setattr(error, name, _HANDED.hidden(value))


def _without(value: Any) -> Any:
    if isinstance(value, str):
        return _HANDED.hidden(value)
    if isinstance(value, bytes):
        return _HANDED.hidden_bytes(value)
    if isinstance(value, msgspec.Struct):
        changes = {
            name: new
            for name in value.__struct_fields__
            if (new := _without(old := getattr(value, name, None))) is not old
        }
        return msgspec.structs.replace(value, **changes) if changes else value
    if isinstance(value, dict):
        told = {_without(key): _without(each) for key, each in value.items()}
        same = len(told) == len(value) and all(key in value and told[key] is value[key] for key in told)
        return value if same else told
    if type(value) in (list, tuple):
        items = [_without(each) for each in value]
        same = all(a is b for a, b in zip(items, value, strict=True))
        return value if same else type(value)(items)
    return value
