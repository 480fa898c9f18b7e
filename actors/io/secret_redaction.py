"""Redaction of secrets in all output: events, tool results, outcomes, errors, logs.

There are two methods. Known secrets are found anywhere, in all usual encodings: values that the vault has handed out in
this process (`handed_out`, `hidden`), the keys of the configured providers, the server's own token. Other secrets are
found by their form, in logs and audit lines only (`Redactor.text`): bearer tokens, signed tokens, keys of Callboard and
of the usual providers. Events are searched only for known secrets, because text of models and users may have such a
form by chance.

The process never forgets a secret, because a client may quote its key at any time. This is the only state here that no
root owns. A tenant (`runs.tenants`) has its own `SecretTexts`. With a shared one, a tenant could guess another's
secret, because redaction confirms the guess. `known` is that of the running task, and all functions here use it.
"""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar, final
from urllib.parse import quote, quote_plus

import msgspec

from ...protocol.environment import SECRET
from ...protocol.kernel.text_cuts import head_of, tail_of

if TYPE_CHECKING:
    from ...protocol.settings import Settings

T = TypeVar("T")

PUT = "[redacted]"
SHORTEST = 8
"""Minimum characters of a secret; shorter ones would match parts of ordinary words."""


SHORTEST_LINE = 20
"""Minimum characters, without blanks, of a line in a multi-line value; shorter ones are headings or settings."""

_VALUE_OF_LINE = re.compile(rf"""[=:]\s*["']?([^\s"']{{{SHORTEST_LINE},}}?)["']?,?$""")
_ESCAPE = re.compile("%[0-9A-F]{2}")
_PUBLIC = re.compile(r"\w+://[^@]*$")


class SecretTexts:
    """Secrets to search for, longest first. Adding is thread-safe.

    Attributes:
        names: vault names of the secrets that were handed out; a secret may have several.
    """

    def __init__(self) -> None:
        self.names: dict[str, set[str]] = {}
        self.texts: tuple[str, ...] = ()
        self.bytes: tuple[bytes, ...] = ()
        self.by_first: dict[str, list[str]] = {}
        self._added: set[str] = set()
        self._adding = threading.Lock()

    def has(self, secret: str) -> bool:
        """Return True if the secret was added."""
        return secret in self._added

    def add(self, secrets: Iterable[str]) -> None:
        """Add secrets, in plain and JSON form; those shorter than `SHORTEST` are ignored."""
        wanted = {secret for secret in secrets if len(secret) >= SHORTEST}
        if wanted <= self._added:
            return
        with self._adding:
            fresh = wanted - self._added
            in_json = {form for each in fresh for form in _in_json(each)}
            self.texts = tuple(sorted({*self.texts, *fresh, *in_json}, key=len, reverse=True))
            self.bytes = tuple(secret.encode("utf-8", "surrogatepass") for secret in self.texts)
            self.by_first = {}
            for text in self.texts:
                self.by_first.setdefault(text[0], []).append(text)
            self._added |= fresh

    def add_forms(self, secret: str) -> None:
        """Add a secret in plain form and in the encodings that programs use."""
        if len(secret) >= SHORTEST and not self.has(secret):
            self.add(_forms(secret))
            self.add((secret,))

    def hidden(self, text: str) -> str:
        """Replace the added secrets in a text."""
        if len(text) < SHORTEST:  # as most names are
            return text
        for secret in self.texts:
            if secret in text:
                text = text.replace(secret, PUT)
        return text

    def begun_at(self, text: str) -> int:
        """Return the position from which the end of the text may be the beginning of a secret; the text's length if
        there is none.
        """
        if not self.texts:
            return len(text)
        for at in range(max(0, len(text) - len(self.texts[0]) + 1), len(text)):
            if any(known.startswith(text[at:]) for known in self.by_first.get(text[at], ())):
                return at
        return len(text)

    def hidden_bytes(self, data: bytes) -> bytes:
        """Replace the added secrets in data. Costs one search per secret."""
        for secret in self.bytes:
            if secret in data:
                data = data.replace(secret, PUT.encode())
        return data


_HANDED = SecretTexts()

known: ContextVar[SecretTexts | None] = ContextVar("callboard_known_secrets", default=None)
"""Secrets of the tenant that the task works for; None for those of the process."""


def _mine() -> SecretTexts:
    return known.get() or _HANDED


def handed_out(*values: str, name: str = "") -> None:
    """Record secrets that the vault has handed out. Those shorter than `SHORTEST` can't be redacted.

    Args:
        name: their `{{NAME}}`; "" if unknown.
    """
    for value in values:
        if len(value) < SHORTEST:
            continue
        mine = _mine()
        mine.add_forms(value)
        mine.names.setdefault(value, set()).add(name)


def anything_handed_out() -> bool:
    """Return True if the vault has handed out a secret in this process, so that texts must be searched."""
    return bool(_mine().texts)


def hidden(text: str) -> str:
    """Redact secrets of the vault in a text."""
    return _mine().hidden(text)


def hidden_head(text: str, most: int) -> str:
    """Return the first `most` characters of the redacted text, so that no part of a secret remains."""
    return head_of(hidden(text), most)


def hidden_tail(text: str, most: int) -> str:
    """Return the end of the redacted text; see `hidden_head`."""
    return tail_of(hidden(text), most)


def hidden_bytes(data: bytes) -> bytes:
    """Redact secrets of the vault in data."""
    return _mine().hidden_bytes(data)


def holds(data: bytes) -> bool:
    """Return True if the data contains a secret of the vault."""
    texts = _mine().bytes
    return bool(texts) and any(secret in data for secret in texts)  # usually empty, and this is called per row


def names_in(data: bytes) -> tuple[str, ...]:
    """Return the names of the vault's secrets in the data, in any encoding; "" for a secret without a name."""
    if not holds(data):
        return ()
    found: set[str] = set()
    for value, names in list(_mine().names.items()):
        forms = (each for form in (value, *_forms(value)) for each in (form, *_in_json(form)))
        if any(len(each) >= SHORTEST and each.encode("utf-8", "surrogatepass") in data for each in forms):
            found |= names
    return tuple(sorted(found))


@final
class Streamed:
    """Redaction of a text that arrives in pieces: a possible start of a secret is held back for the next piece."""

    def __init__(self) -> None:
        self._held = ""

    def next(self, piece: str) -> str:
        """Return the text that can be released now."""
        mine = _mine()
        text = mine.hidden(self._held + piece)
        at = mine.begun_at(text)
        self._held = text[at:]
        return text[:at]

    def rest(self) -> str:
        """Return the held back text at the end of the stream."""
        held, self._held = self._held, ""
        return held


def without_secrets(value: T) -> T:
    """Redact all texts in a value, at any depth: in structs, mappings and lists.

    Returns the same object if it contains no secret.
    """
    mine = _mine()
    return _without(value, mine) if mine.texts else value


def remover() -> Callable[[T], T]:
    """Return `without_secrets` for the secrets known to the running task, as a function that any task can call."""
    mine = _mine()

    def remove(value: T) -> T:
        return _without(value, mine) if mine.texts else value

    return remove


def hide_in(error: BaseException) -> None:
    """Redact secrets of the vault in the text and attributes of an exception."""
    mine = _mine()
    if not mine.texts:
        return
    error.args = _without(error.args, mine)
    for name, value in list(vars(error).items()):  # including its notes (`__notes__`)
        if isinstance(value, str | list | tuple | dict) and (told := _without(value, mine)) is not value:
            setattr(error, name, told)


IN_JSON = 3
"""Nesting depth of JSON in JSON: a log line, a body in it, the arguments of a call in that."""


def _forms(value: str) -> Iterator[str]:
    """Yield the encodings of a secret, except JSON."""
    for escaped in (quote(value, safe=""), quote(value), quote_plus(value)):
        yield escaped
        yield _ESCAPE.sub(lambda found: found[0].lower(), escaped)
    yield from _in_html(value)
    yield from _telling_lines(value)
    yield from _in_base64(value)


def _in_html(value: str) -> Iterator[str]:
    """Yield the HTML text and attribute forms, with the entities that Python, Go, and browsers write for quotes."""
    text = value.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    yield text
    for double in ("&quot;", "&#34;", "&#x22;"):
        yield text.replace('"', double)
        for single in ("&#x27;", "&#39;", "&#039;", "&apos;"):
            yield text.replace('"', double).replace("'", single)


def _in_json(value: str) -> Iterator[str]:
    """Yield JSON forms, including Python's `repr` in errors and tracebacks, and the stricter escaping of Go and PHP."""
    for escaped in (_ascii, _without_separators, _of_go, _of_php, repr):
        text = value
        for _ in range(IN_JSON):
            text = escaped(text)[1:-1]
            yield text


def _ascii(text: str) -> str:
    return json.dumps(text)


def _of_go(text: str) -> str:
    return _without_separators(text).replace("&", r"\u0026").replace("<", r"\u003c").replace(">", r"\u003e")


def _of_php(text: str) -> str:
    return _ascii(text).replace("/", r"\/")


def _without_separators(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _in_base64(value: str) -> Iterator[str]:
    """Yield both base64 alphabets at all three alignments, without characters that depend on the surrounding bytes."""
    data = value.encode("utf-8", "surrogatepass")
    for before in range(3):
        letters = base64.b64encode(b"\0" * before + data).decode().rstrip("=")
        alone = letters[(before * 8 + 5) // 6 : len(letters) - ((before + len(data)) % 3 > 0)]
        yield alone
        yield alone.replace("+", "-").replace("/", "_")


def _telling_lines(value: str) -> Iterator[str]:
    """Yield the lines of a multi-line value that are secret by themselves: lines of PEM blocks, and long words."""
    lines = [line.strip() for line in value.splitlines()]
    in_block = False
    for line in lines if len(lines) > 1 else ():
        if line.startswith("-----"):
            in_block = line.startswith("-----BEGIN")
        elif in_block or (len(line) >= SHORTEST_LINE and not any(map(str.isspace, line))):
            yield line
        if (found := _VALUE_OF_LINE.search(line)) is not None and not _PUBLIC.match(found[1]):
            yield found[1]


def _without(value: Any, mine: SecretTexts) -> Any:
    if isinstance(value, str):
        return mine.hidden(value)
    if isinstance(value, bytes):
        return mine.hidden_bytes(value)
    if isinstance(value, msgspec.Struct):
        changes = {
            name: new
            for name in value.__struct_fields__
            if (new := _without(old := getattr(value, name, None), mine)) is not old
        }
        return msgspec.structs.replace(value, **changes) if changes else value
    if isinstance(value, dict):
        told = {_without(key, mine): _without(each, mine) for key, each in value.items()}
        same = len(told) == len(value) and all(key in value and told[key] is value[key] for key in told)
        return value if same else told
    if type(value) in (list, tuple):
        items = [_without(each, mine) for each in value]
        same = all(a is b for a, b in zip(items, value, strict=True))
        return value if same else type(value)(items)
    return value


# --- secrets recognised by their form, for logs and audit lines
#
# The patterns prefer a false alarm in a log line to a leaked key; that is why events are not searched by form.


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
