"""The `{{path}}` templates of a graph: compiled once, rendered many times.

The whole language is one token: two braces, a path without spaces, two braces. A path walks the state:
`user.name`, `items[0]`, `matrix[0][1].x`. Whatever does not look exactly so is plain text (`{{ a }}`,
`{{a-b}}`). Texts go in as they are, everything else as compact JSON.

Strict rendering collects every missing path before it fails; lenient rendering puts nothing in their place.
Both substitute in one pass, so that a value which happens to hold `{{x}}` stays what it is: state often
comes from a model, a web page or a person, and must not be able to read other state into a prompt. Loki 0.4.0
replaces token by token in the growing text and does expand such values; `expand_again` does it that way.

`compile_template` keeps what it compiled: the same few templates are rendered at every visit of a node.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, Final, TypeAlias

import msgspec

from ....protocol.errors import GraphMistake

State: TypeAlias = Mapping[str, Any]
"""Keys and JSON values."""


class _Missing:
    __slots__ = ()

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final[Any] = _Missing()
"""What a path finds where there is nothing; null is something."""

_TOKEN = re.compile(r"\{\{([a-zA-Z0-9_.\[\]]+)\}\}")
_SEGMENT = re.compile(r"([a-zA-Z0-9_]+)((?:\[[0-9]+\])*)\Z")
_INDEX = re.compile(r"\[([0-9]+)\]")
_LONGEST_INDEX = 18  # digits; a longer one is out of any list's range

Getter: TypeAlias = Callable[[State], Any]


class Template:
    """A compiled template.

    Attributes:
        text: what it was compiled from.
        paths: the paths it reads, each once, in the order of their first appearance.
        single: the path, if the template is one token and nothing else but white space around it.
    """

    __slots__ = ("_pieces", "_tail", "paths", "single", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        pieces: list[tuple[str, str, Getter]] = []
        end = 0
        for token in _TOKEN.finditer(text):
            path = token.group(1)
            pieces.append((text[end : token.start()], path, getter(path)))
            end = token.end()
        self._pieces = tuple(pieces)
        self._tail = text[end:]
        self.paths: tuple[str, ...] = tuple(dict.fromkeys(path for _, path, _ in pieces))
        alone = len(pieces) == 1 and not (pieces[0][0] + self._tail).strip()
        self.single: str | None = pieces[0][1] if alone else None

    def strict(self, state: State, *, expand_again: bool = False) -> str:
        """The rendered text.

        Raises:
            GraphMistake: a path is not in the state; the message names all of them.
        """
        pieces = self._pieces
        if not pieces:
            return self.text
        out: list[str] = []
        missing: list[str] = []
        for literal, path, get in pieces:
            value = get(state)
            if type(value) is str:
                out.append(literal)
                out.append(value)
            elif value is MISSING:
                missing.append(path)
            else:
                out.append(literal)
                out.append(render(value))
        if missing:
            raise GraphMistake(_complaint(missing, state))
        if expand_again:
            return self._replace_in_turn(state)
        out.append(self._tail)
        return "".join(out)

    def lenient(self, state: State, *, expand_again: bool = False) -> str:
        """The rendered text; a path that is not in the state becomes nothing."""
        pieces = self._pieces
        if not pieces:
            return self.text
        if expand_again:
            return self._replace_in_turn(state)
        out: list[str] = []
        for literal, _, get in pieces:
            value = get(state)
            out.append(literal)
            if type(value) is str:
                out.append(value)
            elif value is not MISSING:
                out.append(render(value))
        out.append(self._tail)
        return "".join(out)

    def value(self, state: State) -> Any:
        """The value itself, with its type, that a template of a single path names; `MISSING` if it is not there.

        Raises:
            ValueError: the template is not a single path.
        """
        if self.single is None:
            raise ValueError(f"{self.text!r} is not a single {{{{path}}}}")
        return self._pieces[0][2](state)

    def _replace_in_turn(self, state: State) -> str:
        """Loki 0.4.0's way: each token is replaced everywhere in the text as it has grown so far."""
        text = self.text
        for _, path, get in self._pieces:
            value = get(state)
            text = text.replace("{{" + path + "}}", "" if value is MISSING else render(value))
        return text


@lru_cache(maxsize=4096)
def compile_template(text: str) -> Template:
    """The compiled template of a text."""
    return Template(text)


@lru_cache(maxsize=4096)
def getter(path: str) -> Getter:
    """A function that finds the path in a state. A path that can't be parsed finds nothing."""
    steps = parse_path(path)
    if steps is None:
        return _nothing
    first, rest = steps[0], steps[1:]
    if not rest:
        return lambda state: state.get(first, MISSING)
    return lambda state: _walk(state.get(first, MISSING), rest)


def parse_path(path: str) -> tuple[Any, ...] | None:
    """`users[0].name` as `("users", 0, "name")`: texts name keys, numbers index lists; None if malformed."""
    steps: list[str | int] = []
    for part in path.split("."):
        segment = _SEGMENT.match(part)
        if segment is None:
            return None
        steps.append(segment.group(1))
        for digits in _INDEX.findall(segment.group(2)):
            if len(digits) > _LONGEST_INDEX:
                return None
            steps.append(int(digits))
    return tuple(steps)


def root_of(path: str) -> str:
    """The state key a path begins with: `users` of `users[0].name`."""
    return re.split(r"[.\[]", path, maxsplit=1)[0]


def render(value: Any) -> str:
    """A JSON value as it appears in a text: a text as it is, all else as compact JSON."""
    if type(value) is str:
        return value
    if value is None:
        return "null"
    if value is True:
        return "true"
    if value is False:
        return "false"
    try:
        return _encode(value).decode()
    except (OverflowError, msgspec.MsgspecError, TypeError):
        # An int beyond 64 bits, which JSON allows and msgspec does not write.
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


_encode = msgspec.json.Encoder().encode


def _nothing(_state: State) -> Any:
    return MISSING


def _walk(value: Any, steps: tuple[Any, ...]) -> Any:
    for step in steps:
        if type(step) is int:
            if type(value) is not list or step >= len(value):
                return MISSING
            value = value[step]
        else:
            if not isinstance(value, dict):
                return MISSING
            value = value.get(step, MISSING)
    return value


def _complaint(missing: list[str], state: State) -> str:
    names = list(dict.fromkeys(missing))
    text = f"Template interpolation failed: {', '.join(repr(name) for name in names)} not found in state"
    near = [match for name in names for match in get_close_matches(root_of(name), list(state), n=1, cutoff=0.75)]
    near = [name for name in dict.fromkeys(near) if name not in names]
    return f"{text} (did you mean {', '.join(repr(name) for name in near)}?)" if near else text
