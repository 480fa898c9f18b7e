"""What the vault has handed out in this process, and how it is taken out of all output.

Of events before anybody hears them, of what tools return to models, of outcomes, of errors, and of all that the command
line prints and logs; `redact`, which knows other secrets as well, asks here too. The process remembers it for good,
since a client may quote its key at any time; it is the one thing here that no root owns.
"""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar, final
from urllib.parse import quote, quote_plus

import msgspec

T = TypeVar("T")

PUT = "[redacted]"
SHORTEST = 8
"""Characters; what is shorter would be found in words that are no secrets."""


SHORTEST_LINE = 20
"""Characters without blanks; what is shorter, alone on a line of a longer value, is a heading or a setting."""

_VALUE_OF_LINE = re.compile(rf"""[=:]\s*["']?([^\s"']{{{SHORTEST_LINE},}}?)["']?,?$""")
_PUBLIC = re.compile(r"\w+://[^@]*$")


class Known:
    """Texts to look for, the longest first. Threads may add at once.

    Attributes:
        names: what those that were handed out are called in the vault, of each all its names.
    """

    def __init__(self) -> None:
        self.names: dict[str, set[str]] = {}
        self.texts: tuple[str, ...] = ()
        self.bytes: tuple[bytes, ...] = ()
        self.by_first: dict[str, list[str]] = {}
        self._added: set[str] = set()
        self._adding = threading.Lock()

    def has(self, secret: str) -> bool:
        """Whether it was added."""
        return secret in self._added

    def add(self, secrets: Iterable[str]) -> None:
        """Look for these too, as they are and as they stand in JSON, but for those below `SHORTEST`."""
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

    def hidden(self, text: str) -> str:
        """The text without them."""
        if len(text) < SHORTEST:  # as most names are
            return text
        for secret in self.texts:
            if secret in text:
                text = text.replace(secret, PUT)
        return text

    def begun_at(self, text: str) -> int:
        """From where on a text may be the beginning of one of them; its length if its end is none."""
        if not self.texts:
            return len(text)
        for at in range(max(0, len(text) - len(self.texts[0]) + 1), len(text)):
            if any(known.startswith(text[at:]) for known in self.by_first.get(text[at], ())):
                return at
        return len(text)

    def hidden_bytes(self, data: bytes) -> bytes:
        """The data without them. Costs a search for each."""
        for secret in self.bytes:
            if secret in data:
                data = data.replace(secret, PUT.encode())
        return data


_HANDED = Known()


def handed_out(*values: str, name: str = "") -> None:
    """The vault has given these to something in this process. Those below `SHORTEST` can't be told from other words.

    Args:
        name: what `{{NAME}}` they stand for; "" where that is not known.
    """
    for value in values:
        if len(value) < SHORTEST:
            continue
        if not _HANDED.has(value):
            _HANDED.add(_forms(value))
            _HANDED.add((value,))
        _HANDED.names.setdefault(value, set()).add(name)


def anything_handed_out() -> bool:
    """Whether there is anything to hide."""
    return bool(_HANDED.texts)


def hidden(text: str) -> str:
    """The text without what the vault has handed out."""
    return _HANDED.hidden(text)


def hidden_bytes(data: bytes) -> bytes:
    """The data without what the vault has handed out."""
    return _HANDED.hidden_bytes(data)


def holds(data: bytes) -> bool:
    """Whether something that the vault has handed out stands in it."""
    known = _HANDED.bytes
    return bool(known) and any(secret in data for secret in known)  # mostly there is none, and this is asked per row


def names_in(data: bytes) -> tuple[str, ...]:
    """The names of what the vault has handed out that stands in it, in whatever form; "" for what has none."""
    if not holds(data):
        return ()
    found: set[str] = set()
    for value, names in list(_HANDED.names.items()):
        forms = (each for form in (value, *_forms(value)) for each in (form, *_in_json(form)))
        if any(len(each) >= SHORTEST and each.encode("utf-8", "surrogatepass") in data for each in forms):
            found |= names
    return tuple(sorted(found))


@final
class Streamed:
    """Takes them out of a text that comes in pieces: what may be the beginning of one waits for the next piece."""

    def __init__(self) -> None:
        self._held = ""

    def next(self, piece: str) -> str:
        """What may be told by now."""
        text = _HANDED.hidden(self._held + piece)
        at = _HANDED.begun_at(text)
        self._held = text[at:]
        return text[:at]

    def rest(self) -> str:
        """What was held back, where no further piece comes."""
        held, self._held = self._held, ""
        return held


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
    for name, value in list(vars(error).items()):  # notes of it (`__notes__`) as well
        if isinstance(value, str | list | tuple | dict) and (told := _without(value)) is not value:
            setattr(error, name, told)


IN_JSON = 3
"""How deep JSON stands in JSON: a line of a log, a body in it, the arguments of a call in that."""


def _forms(value: str) -> Iterator[str]:
    """How it may stand elsewhere than where it is put in, but for JSON."""
    yield from (quote(value, safe=""), quote(value), quote_plus(value))
    yield from _telling_lines(value)
    yield from _in_base64(value)


def _in_json(value: str) -> Iterator[str]:
    """Also as Python shows texts in errors and tracebacks, which is another way to escape."""
    for escaped in (_ascii, _letters, repr):
        text = value
        for _ in range(IN_JSON):
            text = escaped(text)[1:-1]
            yield text


def _ascii(text: str) -> str:
    return json.dumps(text)


def _letters(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _in_base64(value: str) -> Iterator[str]:
    """In both alphabets, wherever it stands in what was encoded: but for the letters that depend on what is around."""
    data = value.encode("utf-8", "surrogatepass")
    for before in range(3):
        letters = base64.b64encode(b"\0" * before + data).decode().rstrip("=")
        alone = letters[(before * 8 + 5) // 6 : len(letters) - ((before + len(data)) % 3 > 0)]
        yield alone
        yield alone.replace("+", "-").replace("/", "_")


def _telling_lines(value: str) -> Iterator[str]:
    """What of a value with several lines is secret by itself: the lines of its PEM blocks, and long words."""
    lines = [line.strip() for line in value.splitlines()]
    in_block = False
    for line in lines if len(lines) > 1 else ():
        if line.startswith("-----"):
            in_block = line.startswith("-----BEGIN")
        elif in_block or (len(line) >= SHORTEST_LINE and not any(map(str.isspace, line))):
            yield line
        if (found := _VALUE_OF_LINE.search(line)) is not None and not _PUBLIC.match(found[1]):
            yield found[1]


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
