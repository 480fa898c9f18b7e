"""`{{path}}` templates of a graph: compiled once, rendered many times.

The language has one token: two braces, a path without spaces, two braces. A path selects a value of the state:
`user.name`, `items[0]`, `items[-1]`, `matrix[0][1].x`. Names are letters and digits of any script, `_` and `-`.
Everything else is plain text (`{{ a }}`, `{{a|upper}}`); `validate` reports such text if it names a key. Strings
are inserted unchanged, other values as compact JSON.

Strict rendering collects every missing path before it fails; lenient rendering inserts nothing for them. Both
substitute in one pass, so that a value that contains `{{x}}` is inserted unchanged. State often comes from a model,
a web page or a user, and must not be able to read other state into a prompt. Loki 0.4.0 replaces token by token in
the growing text and does expand such values. `expand_again` reproduces that, and accepts only names of ASCII
letters, digits and `_`, and no negative index.

`compile_template` caches its results, because every visit of a node renders the same few templates.
"""

from __future__ import annotations

import json
import re
import string
from collections.abc import Callable, Mapping
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
"""Value of a path that is not in the state; null is a value."""

# Not `\w`: it lacks the vowel signs of Indic scripts and the marks of decomposed letters, so `{{नाम}}` would reach the
# model unrendered.
_LETTERS = frozenset(string.ascii_letters + string.digits + "_")


def name_character(more: str = "") -> str:
    """Return a regular expression for one character of a name, or one of `more`: `a-z`, `A-Z`, `0-9`, `_`, non-ASCII.

    The expression excludes all other ASCII characters. One that lists the range up to U+10FFFF takes 4 ms to compile,
    and a dozen of them would be a tenth of the CPU of `callboard run`.
    """
    return f"[^{re.escape(_others(more))}]"


def separator(more: str = "") -> str:
    """Return a regular expression for one character that `name_character(more)` does not match, except white space."""
    return f"[{re.escape(''.join(each for each in _others(more) if not each.isspace()))}]"


def _others(more: str) -> str:
    return "".join(each for each in map(chr, range(128)) if each not in _LETTERS and each not in more)


_BLANK = r"(?![^{}]*\s)"
_TOKEN = re.compile(rf"\{{\{{{_BLANK}({name_character('.[]')}{name_character('.[]-')}*)\}}\}}")
_LOKI_PATH = re.compile(r"[a-zA-Z0-9_.\[\]]+\Z")
_SEGMENT = re.compile(rf"({name_character()}{name_character('-')}*)((?:\[-?[0-9]+\])*)\Z")
_INDEX = re.compile(r"\[(-?[0-9]+)\]")
_LONGEST_INDEX = 18  # digits; a longer number is beyond the range of any list

Getter: TypeAlias = Callable[[State], Any]


class CompiledTemplate:
    """Compiled `{{path}}` template.

    Attributes:
        text: the text that was compiled.
        paths: the paths it reads, without duplicates, in the order of their first appearance.
        single: the path, if the template is a single token with optional white space around it.
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
        """Return the rendered text.

        Raises:
            GraphMistake: a path is not in the state; the message names all such paths.
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
                # Loki 0.4.0 does not recognise this token as a template, so it cannot be missing.
                if not expand_again or _LOKI_PATH.match(path):
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
        """Return the rendered text; a path that is not in the state renders as nothing."""
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
        """Return the value of a template of a single path, with its type; `MISSING` if it is not in the state.

        Raises:
            ValueError: the template is not a single path.
        """
        if self.single is None:
            raise ValueError(f"{self.text!r} is not a single {{{{path}}}}")
        return self._pieces[0][2](state)

    def _replace_in_turn(self, state: State) -> str:
        """Replace each token everywhere in the growing text, as Loki 0.4.0 does."""
        text = self.text
        for _, path, get in self._pieces:
            if not _LOKI_PATH.match(path):
                continue
            value = get(state)
            text = text.replace("{{" + path + "}}", "" if value is MISSING else render(value))
        return text


@lru_cache(maxsize=4096)
def compile_template(text: str) -> CompiledTemplate:
    """Return the compiled template; the last 4,096 different texts are cached."""
    return CompiledTemplate(text)


@lru_cache(maxsize=4096)
def getter(path: str) -> Getter:
    """Return a function that finds the path in a state. A malformed path finds `MISSING`."""
    steps = parse_path(path)
    if steps is None:
        return _nothing
    first, rest = steps[0], steps[1:]
    if not rest:
        return lambda state: state.get(first, MISSING)
    return lambda state: _walk(state.get(first, MISSING), rest)


def parse_path(path: str) -> tuple[Any, ...] | None:
    """Return `users[0].name` as `("users", 0, "name")`: strings are keys, numbers are indices. None if malformed."""
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
    """Return the state key that a path begins with: `users` of `users[0].name`."""
    return re.split(r"[.\[]", path, maxsplit=1)[0]


def render(value: Any) -> str:
    """Return a JSON value as text: a string unchanged, everything else as compact JSON."""
    if type(value) is str:
        return value
    if value is None:
        return "null"
    if value is True:
        return "true"
    if value is False:
        return "false"
    return encode(value).decode()


def encode(value: Any) -> bytes:
    """Return a value as compact JSON in UTF-8; integers may exceed 64 bits."""
    try:
        return _encode(value)
    except (OverflowError, msgspec.MsgspecError, TypeError):
        # msgspec cannot write an int beyond 64 bits, which JSON allows.
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


_encode = msgspec.json.Encoder().encode


def _nothing(_state: State) -> Any:
    return MISSING


def _walk(value: Any, steps: tuple[Any, ...]) -> Any:
    for step in steps:
        if type(step) is int:
            if type(value) is not list or not -len(value) <= step < len(value):
                return MISSING
            value = value[step]
        else:
            if not isinstance(value, dict):
                return MISSING
            value = value.get(step, MISSING)
    return value


def _complaint(missing: list[str], state: State) -> str:
    from difflib import get_close_matches

    names = list(dict.fromkeys(missing))
    text = f"Template interpolation failed: {', '.join(repr(name) for name in names)} not found in state"
    near = [match for name in names for match in get_close_matches(root_of(name), list(state), n=1, cutoff=0.75)]
    near = [name for name in dict.fromkeys(near) if name not in names]
    return f"{text} (did you mean {', '.join(repr(name) for name in near)}?)" if near else text
