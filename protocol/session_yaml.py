"""YAML of sessions: the core schema of YAML 1.2 (`yes` and dates are text), as serde writes it.

Files may be edited by hand, truncated, or sent by an attacker. PyYAML's own loader recurses in C, so a line of
brackets crashes the process. A few hundred bytes of nested aliases fill the memory when they are written again.
Therefore the values are built from the parser's events, with a limit for the depth and one for the expansion of
aliases.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from .errors import InvalidFile

Json = Any

DEEPEST = 100
"""Maximum nesting of mappings and lists; a conversation with the arguments of its tools stays below 20."""

MOST_ALIASED = 1_000_000
"""Maximum of values and characters in the expansions of all aliases of a file."""

_C = yaml.__with_libyaml__
_YAML = "tag:yaml.org,2002:"
_CORE = {
    # The last alternative is empty: a key without a value is null.
    "null": r"~|null|Null|NULL|",
    "bool": r"true|True|TRUE|false|False|FALSE",
    "int": r"[-+]?(?:0|[1-9][0-9]*)|0o[0-7]+|0x[0-9a-fA-F]+",
    "float": r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
}
_GUESSED = re.compile("|".join(f"(?P<{kind}>{pattern})" for kind, pattern in _CORE.items()))
"""Texts that are another type when unquoted."""


def read_yaml(text: str, file: str) -> Json:
    """Return the contents of a document.

    Raises:
        InvalidFile: the text is not YAML, is nested too deep, or its aliases expand to too much.
    """
    try:
        return _Reading(file).value_of(text)
    except yaml.YAMLError as error:
        raise InvalidFile(f"{file} is no YAML: {' '.join(str(error).split())}") from None


def write_yaml(value: Json) -> str:
    """Return the text of a document, without aliases. A text replaces values nested too deep to be read again."""
    return yaml.dump(_cut(value, DEEPEST), Dumper=_Dumper, allow_unicode=True, sort_keys=False, width=120)


def _cut(value: Json, levels: int) -> Json:
    if not isinstance(value, dict | list):
        return value
    if levels == 0:
        return "[nested too deeply to be kept]"
    if isinstance(value, dict):
        return {key: _cut(each, levels - 1) for key, each in value.items()}
    return [_cut(each, levels - 1) for each in value]


class _Open:
    """Mapping or list that has not ended; `key` is the key without a value."""

    def __init__(self, anchor: str | None, before: int, *, mapping: bool) -> None:
        self.value: Any = {} if mapping else []
        self.mapping = mapping
        self.anchor = anchor
        self.before = before
        self.has_key = False
        self.key: Any = None


class _Reading:
    """Reader of one document from its events."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[Json, int]] = {}
        self._size = 0
        self._aliased = 0
        self._found: Json = None

    def value_of(self, text: str) -> Json:
        """Return the contents of the text."""
        documents = 0
        for event in yaml.parse(text, Loader=yaml.CSafeLoader if _C else yaml.SafeLoader):
            if isinstance(event, yaml.ScalarEvent):
                self._size += 1 + len(event.value)
                value = self._scalar(event)
                if event.anchor is not None:
                    self._anchors[event.anchor] = value, 1 + len(event.value)
                self._put(value)
            elif isinstance(event, yaml.CollectionStartEvent):
                self._begin(event)
            elif isinstance(event, yaml.CollectionEndEvent):
                self._end()
            elif isinstance(event, yaml.AliasEvent):
                self._put(self._alias(event.anchor or ""))
            elif isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise InvalidFile(f"{self._file} holds more than one document")
        return self._found

    def _begin(self, event: yaml.CollectionStartEvent) -> None:
        mapping = isinstance(event, yaml.MappingStartEvent)
        self._check_tag(event.tag, "map" if mapping else "seq")
        if len(self._open) >= DEEPEST:
            raise InvalidFile(f"{self._file}: it nests too deeply (more than {DEEPEST})")
        self._open.append(_Open(event.anchor, self._size, mapping=mapping))
        self._size += 1

    def _end(self) -> None:
        over = self._open.pop()
        if over.anchor is not None:
            self._anchors[over.anchor] = over.value, self._size - over.before
        self._put(over.value)

    def _alias(self, anchor: str) -> Json:
        if anchor not in self._anchors:
            raise InvalidFile(f"{self._file}: the alias *{anchor[:60]} stands for nothing that is there before it")
        value, size = self._anchors[anchor]
        self._size += size
        self._aliased += size
        if self._aliased > MOST_ALIASED:
            raise InvalidFile(f"{self._file}: its aliases stand for too much")
        return value

    def _put(self, value: Json) -> None:
        if not self._open:
            self._found = value
            return
        here = self._open[-1]
        if not here.mapping:
            here.value.append(value)
        elif here.has_key:
            here.value[here.key] = value
            here.has_key = False
        elif isinstance(value, list | dict):
            raise InvalidFile(f"{self._file}: a key is a text, not a list or a mapping")
        else:
            here.key, here.has_key = value, True

    def _scalar(self, event: yaml.ScalarEvent) -> Json:
        text, tag = event.value, event.tag
        if tag is None and not event.implicit[0]:
            return text
        guess = _GUESSED.fullmatch(text)
        kind = "str" if guess is None or guess.lastgroup is None else guess.lastgroup
        if tag is not None and tag != "!":
            wanted = tag.removeprefix(_YAML)
            if wanted == "str":
                return text
            self._check_tag(tag, "float" if wanted == "float" and kind == "int" else kind)
            kind = wanted
        # YAML 1.2, section 6.9.1: the tag `!` makes any scalar a text.
        elif tag == "!":
            return text
        try:
            return _MADE[kind](text)
        except ValueError:  # more digits than Python converts
            raise InvalidFile(f"{self._file}: the number {text[:20]}... is too long") from None

    def _check_tag(self, tag: str | None, kind: str) -> None:
        if tag not in (None, "!", _YAML + kind) and not (kind == "int" and tag == _YAML + "float"):
            raise InvalidFile(f"{self._file}: the tag {str(tag)[:60]!r} says nothing to us here")


def _whole(text: str) -> int:
    digits = text.lstrip("+-")
    return int(text, 8 if digits.startswith("0o") else 16 if digits.startswith("0x") else 10)


def _decimal(text: str) -> float:
    plain = text.lower()
    return float(plain.replace(".inf", "inf").replace(".nan", "nan"))


_MADE: dict[str, Any] = {
    "str": str,
    "null": lambda _: None,
    "bool": lambda text: text.lower() == "true",
    "int": _whole,
    "float": _decimal,
}


class _Dumper(yaml.CSafeDumper if _C else yaml.SafeDumper):  # type: ignore[misc]  # one of two
    """Safe dumper that writes texts with line breaks as block scalars."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - each value is written where it stands
        return True


def _text(dumper: Any, value: str) -> yaml.ScalarNode:
    plain = value.encode("utf-8", "replace").decode()  # Half of a surrogate pair cannot be written.
    # PyYAML quotes by the rules of YAML 1.1, and writes `1e3` and `0o17` bare. By YAML 1.2 these are numbers.
    style = "|" if "\n" in plain else "'" if _GUESSED.fullmatch(plain) else None
    node: yaml.ScalarNode = dumper.represent_scalar(_YAML + "str", plain, style=style)
    return node


_Dumper.add_representer(str, _text)
