"""Removes secrets from logs, audit lines and events.

It looks for two things. Known secrets (the keys of the configured providers, the server's own token) are found
wherever they stand. Others are found by their form: bearer tokens, signed tokens, keys of ours and of the usual
providers. Events are searched for the former only: text of models and people may look like the latter by chance.

What the vault has handed out (`handed_out`) every redactor of the process knows, and it is taken out of more: of events
before anybody hears them, of what tools return to models, of outcomes, and of all that the command line prints of
errors and logs (`hidden`, `without_secrets`). The process remembers it for good, since a client may quote its key at
any time; it is the one thing here that no root owns.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar, final
from urllib.parse import quote

import msgspec

from ...protocol.references import SECRET
from ...protocol.settings import Settings

T = TypeVar("T")

PUT = "[redacted]"
SHORTEST = 8
"""Characters; what is shorter would be found in words that are no secrets."""

_FORMS = re.compile(
    r"(?P<head>\bbearer[ .]+)[A-Za-z0-9._~+/=-]{8,}"
    r"|\bcb_[A-Za-z0-9-]{1,64}_[A-Za-z0-9_-]{16,}"
    r"|\bey[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"
    r"|\b(?:sk|pk|ghp|gho|xox[abp]|AIza)[-_A-Za-z0-9]{20,}"
    r"|\$argon2id?\$[^\s\"']+"
    r"|(?P<field>[#?&](?:token|access_token|api_key|key)=)[^&\s\"']+",
    re.IGNORECASE,
)


class _Known:
    """Texts to look for, the longest first."""

    def __init__(self) -> None:
        self.texts: tuple[str, ...] = ()
        self.bytes: tuple[bytes, ...] = ()

    def add(self, secrets: Iterable[str]) -> None:
        known = {*self.texts, *(secret for secret in secrets if len(secret) >= SHORTEST)}
        known |= {json.dumps(secret)[1:-1] for secret in known}  # as it stands in JSON
        self.texts = tuple(sorted(known, key=len, reverse=True))
        self.bytes = tuple(secret.encode("utf-8", "surrogatepass") for secret in self.texts)

    def hidden(self, text: str) -> str:
        for secret in self.texts:
            if secret in text:
                text = text.replace(secret, PUT)
        return text


_HANDED = _Known()


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
        for secret in _HANDED.bytes:
            if secret in value:
                value = value.replace(secret, PUT.encode())
        return value
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


@final
class Redactor:
    """Takes secrets out.

    Args:
        secrets: what must not be seen; others may follow with `add`.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._known = _Known()
        self.add(*secrets)

    def add(self, *secrets: str) -> None:
        """Look for these too."""
        self._known.add(secrets)

    def text(self, text: str) -> str:
        """A line without what we know and what looks like a secret."""
        return _FORMS.sub(_put, _HANDED.hidden(self._known.hidden(text)))

    def data(self, data: bytes) -> bytes:
        """An encoded event without what we know. Costs a search per secret."""
        for secret in (*self._known.bytes, *_HANDED.bytes):
            if secret in data:
                data = data.replace(secret, PUT.encode())
        return data


def secrets_of(settings: Settings, environ: Mapping[str, str]) -> list[str]:
    """The keys of the providers: those that the settings name, and what else the environment calls an API key."""
    named = [client.api_key for client in settings.clients]
    named += [client.oauth.client_secret for client in settings.clients if client.oauth is not None]
    named = [text for text in named if text and not SECRET.search(text)]  # a `{{NAME}}` is no secret yet
    return [*named, *(value for name, value in environ.items() if name.endswith("_API_KEY") and " " not in value)]


def _put(match: re.Match[str]) -> str:
    return f"{match['head'] or match['field'] or ''}{PUT}"
