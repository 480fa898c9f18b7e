"""Redaction of secrets in logs, audit lines and events.

There are two methods. Known secrets (the keys of the configured providers, the server's own token) are found anywhere.
Others are found by their form: bearer tokens, signed tokens, keys of Callboard and of the usual providers. Events are
searched only for known ones: text of models and users may have such a form by chance.

All redactors of the process know the secrets of the vault (`handed_out`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import final

from ...protocol.references import SECRET
from ...protocol.settings import Settings
from .handed_out import PUT, SecretTexts, hidden, hidden_bytes

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
    """Redactor for known and recognisable secrets.

    Args:
        secrets: known secrets; `add` adds more.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._known = SecretTexts()
        self.add(*secrets)

    def add(self, *secrets: str) -> None:
        """Add known secrets, in all encodings."""
        for secret in secrets:
            self._known.add_forms(secret)

    def text(self, text: str) -> str:
        """Redact known and recognisable secrets in a line."""
        return _FORMS.sub(_put, self.known(text))

    def known(self, text: str) -> str:
        """Redact known secrets in a text."""
        return hidden(self._known.hidden(text))

    def data(self, data: bytes) -> bytes:
        """Redact known secrets in an encoded event. Costs one search per secret."""
        return hidden_bytes(self._known.hidden_bytes(data))


_LOGIN = re.compile(r"(?<=://)[^/@\s]+@|^[^/@\s:]+:[^/@\s]+@")


def without_logins(text: str) -> str:
    """Replace credentials in URLs with `***@`; a proxy may lack `http://`."""
    return _LOGIN.sub("***@", text)


def secrets_of(settings: Settings, environ: Mapping[str, str]) -> list[str]:
    """Return the keys of the providers: those in the settings, and all API keys in the environment."""
    named = [client.api_key for client in settings.clients]
    named += [client.oauth.client_secret for client in settings.clients if client.oauth is not None]
    named = [text for text in named if text and not SECRET.search(text)]  # a `{{NAME}}` is a reference, not a secret
    return [*named, *(value for name, value in environ.items() if name.endswith("_API_KEY") and " " not in value)]


def _put(match: re.Match[str]) -> str:
    return f"{match['head'] or match['field'] or ''}{PUT}"
