"""Removes secrets from logs, audit lines and events.

It looks for two things. Known secrets (the keys of the configured providers, the server's own token) are found
wherever they stand. Others are found by their form: bearer tokens, signed tokens, keys of ours and of the usual
providers. Events are searched for the former only: text of models and people may look like the latter by chance.

What the vault has handed out, every redactor of the process knows (`handed_out`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import final

from ...protocol.references import SECRET
from ...protocol.settings import Settings
from .handed_out import PUT, Known, hidden, hidden_bytes

_FORMS = re.compile(
    r"(?P<head>\bbearer[ .]+)[A-Za-z0-9._~+/=-]{8,}"
    r"|\bcb_[A-Za-z0-9-]{1,64}_[A-Za-z0-9_-]{16,}"
    r"|\bey[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"
    r"|\b(?:sk|pk|gh[opsu]|github_pat|glpat|hf_|xox[abp]|AIza)[-_A-Za-z0-9]{20,}"
    r"|\$argon2id?\$[^\s\"']+"
    r"|(?P<field>[#?&](?:token|access_token|api_key|key)=)[^&\s\"']+",
    re.IGNORECASE,
)


@final
class Redactor:
    """Takes secrets out.

    Args:
        secrets: what must not be seen; others may follow with `add`.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._known = Known()
        self.add(*secrets)

    def add(self, *secrets: str) -> None:
        """Look for these too."""
        self._known.add(secrets)

    def text(self, text: str) -> str:
        """A line without what we know and what looks like a secret."""
        return _FORMS.sub(_put, self.known(text))

    def known(self, text: str) -> str:
        """A text without what we know."""
        return hidden(self._known.hidden(text))

    def data(self, data: bytes) -> bytes:
        """An encoded event without what we know. Costs a search per secret."""
        return hidden_bytes(self._known.hidden_bytes(data))


_LOGIN = re.compile(r"(?<=://)[^/@\s]+@|^[^/@\s:]+:[^/@\s]+@")


def without_logins(text: str) -> str:
    """A text with `***@` in the place of names and passwords in its URLs; a proxy's need not have `http://`."""
    return _LOGIN.sub("***@", text)


def secrets_of(settings: Settings, environ: Mapping[str, str]) -> list[str]:
    """The keys of the providers: those that the settings name, and what else the environment calls an API key."""
    named = [client.api_key for client in settings.clients]
    named += [client.oauth.client_secret for client in settings.clients if client.oauth is not None]
    named = [text for text in named if text and not SECRET.search(text)]  # a `{{NAME}}` is no secret yet
    return [*named, *(value for name, value in environ.items() if name.endswith("_API_KEY") and " " not in value)]


def _put(match: re.Match[str]) -> str:
    return f"{match['head'] or match['field'] or ''}{PUT}"
