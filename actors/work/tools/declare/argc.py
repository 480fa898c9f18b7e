"""Parser for argc's notation of one argument or variable, the text after `@option`, `@flag`, `@arg` and `@env`.

    -s --long  modifier  choices or default  <NOTATION>...  $VARIABLE  description
    @option -n --count=1 <INT> $COUNT How many
    @option --tag*,[red|blue] Tags, in one word with commas between them
    @arg file! The file to read

Modifiers: `!` required, `*` several, `+` several and at least one (both may name a separator: `*,`), `~` all remaining
words. Values: `=text`, ``=`function` ``, `[a|b]`, `[=a|b]` (the first is the default), ``[`function`]``, and
``[?`function`]`` for choices that are not checked. Texts with spaces need quotes. A notation with a comma in it
(`<a,b>`) is Loki's way to declare an option with several values.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from .declaration import Argument, EnvVar, Schema, Value
from .schemas import array, described, enum
from .script import UnreadableDeclaration

_SHORT = re.compile(r"(-[^\s-])(?=\s+--)")
_FLAGGED = re.compile(r"(--?|\+)([A-Za-z0-9][\w.:-]*|[^\s\w-](?=\s|$))")
_NAME = re.compile(r"[A-Za-z0-9_][\w.:-]*")
_VARIABLE = re.compile(r"[A-Za-z_]\w*")
_MODIFIER = re.compile(r"[!~]|[*+][,:@|/;]?")
_QUOTED = re.compile(r""""((?:\\.|[^"\\])*)"|'([^']*)'""")
_EQUALS = re.compile("=")
_WORD = re.compile(r"\S*")
_CALL = re.compile(r"`([^`\s]+)`")
_CHOICES = re.compile(r"""\[(=?)((?:"(?:\\.|[^"\\])*"|'[^']*'|[^\]"'])*)\]""")
_PIECES = re.compile(r"""\||"(?:\\.|[^"\\])*"|'[^']*'|[^|"']+""")
_CALLED_CHOICES = re.compile(r"\[(\??)`([^`\s]+)`\]")
_NOTATION = re.compile(r"<([^<>]+)>")
_BOUND = re.compile(r"\$(\$|[A-Za-z_]\w*)(?=\s|$)")

TYPES = {"INT": "integer", "NUM": "number"}
"""JSON types by notation. Any other notation only names the value for users."""


class ArgcLine(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed line.

    Attributes:
        argument: its mapping to the script's arguments.
        schema: of its JSON property, without the description.
        description: for the model.
        doubt: a probable mistake of the author, or "".
    """

    argument: Argument
    schema: Schema
    description: str
    doubt: str = ""

    @property
    def needed(self) -> bool:
        """True if every call must include it."""
        argument = self.argument
        stands_in = argument.default is not None or argument.default_function or argument.environment
        return argument.required and not stands_in

    def in_json(self) -> Schema:
        """Return the JSON property, its default after the description."""
        default = {"default": self.schema["default"]} if "default" in self.schema else {}
        return described({k: v for k, v in self.schema.items() if k != "default"}, self.description, **default)


class _Line:
    """The rest of a tag's line, consumed from the left."""

    def __init__(self, tag: str, text: str, line: int, offset: int) -> None:
        self.tag = tag
        self.text = text
        self._line = line
        self._offset = offset
        self._at = 0

    def take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        match = pattern.match(self.text, self._at)
        if match is not None:
            self._at = match.end()
        return match

    def skip_space(self) -> None:
        while self.rest[:1].isspace():
            self._at += 1

    @property
    def rest(self) -> str:
        return self.text[self._at :]

    def wrong(self, message: str, *, expected: str = "", hint: str = "") -> UnreadableDeclaration:
        offset = self._offset + len(self.text[: self._at].encode())
        return UnreadableDeclaration(
            "argc_syntax", f"@{self.tag}: {message}", self._line, offset, expected=expected, hint=hint
        )


def read_argument(tag: str, text: str, more: str, line: int, offset: int) -> ArgcLine:
    """Parse an `@option`, `@flag` or `@arg`.

    Args:
        tag: the tag's name.
        text: the rest of its line.
        more: the comment lines below, which continue the description.
        line, offset: position of `text`.

    Raises:
        UnreadableDeclaration: the text does not match argc's grammar.
    """
    rest = _Line(tag, text, line, offset)
    short, long = _names(rest)
    modifier = match[0] if (match := rest.take(_MODIFIER)) else ""
    value = _value(rest)
    if rest.rest and not rest.rest[0].isspace():
        raise rest.wrong(
            f"can't read '{rest.rest.split()[0]}'",
            expected="a modifier (! * + ~), then `=default` or `[choices]`, then a space and the description",
        )
    if tag == "flag" and (modifier not in ("", "*") or value != Value()):
        raise rest.wrong(
            "a flag has no value", expected="nothing, or * for one that may be repeated", hint="use @option"
        )
    notations = _notations(rest)
    listed = len(notations) == 1 and "," in notations[0] and not modifier
    bound = rest.take(_BOUND)
    name = re.sub(r"[.:-]", "_", long or short.lstrip("-+"))
    argument = Argument(
        name=name,
        kind="positional" if tag == "arg" else "flag" if tag == "flag" else "option",
        long=long,
        short=short,
        multiple=listed or modifier.startswith(("*", "+")),
        comma="," if listed else modifier[1:],
        capture=modifier == "~",
        values=0 if tag == "flag" else max(1, len(notations)),
        more=bool(notations) and notations[-1][-1] in "*+",
        required=modifier.startswith(("!", "+")),
        environment="" if bound is None else re.sub(r"\W", "_", long).upper() if bound[1] == "$" else bound[1],
        **msgspec.structs.asdict(value),
    )
    schema, doubt = _schema(argument, TYPES.get(notations[0].rstrip("*+?"), "string") if notations else "string")
    return ArgcLine(argument=argument, schema=schema, description=_joined(rest.rest, more), doubt=doubt)


def read_variable(text: str, more: str, line: int, offset: int) -> EnvVar:
    """Parse an `@env`.

    Raises:
        UnreadableDeclaration: the text does not match argc's grammar.
    """
    rest = _Line("env", text, line, offset)
    name = rest.take(_VARIABLE)
    if name is None:
        raise rest.wrong("no name of a variable", expected="`# @env NAME description`")
    required = rest.rest.startswith("!") and rest.take(_MODIFIER) is not None
    value = _value(rest)
    if rest.rest and not rest.rest[0].isspace():
        raise rest.wrong(
            f"can't read '{rest.rest.split()[0]}'", expected="`!`, `=default` or `[choices]`, then a space"
        )
    _notations(rest)
    return EnvVar(
        name=name[0], description=_joined(rest.rest, more), required=required, **msgspec.structs.asdict(value)
    )


def _joined(text: str, more: str) -> str:
    return f"{text.strip()}\n{more}".strip()


def _names(rest: _Line) -> tuple[str, str]:
    if rest.tag == "arg":
        name = rest.take(_NAME)
        if name is None:
            raise rest.wrong("no name", expected="`# @arg name description`")
        return "", name[0]
    short = rest.take(_SHORT)
    if short is not None:
        rest.skip_space()
    name = rest.take(_FLAGGED)
    if name is None:
        raise rest.wrong("no name", expected=f"`# @{rest.tag} --name description`")
    # `-n` alone is an option without a long name.
    if name[1] == "-" and len(name[2]) == 1 and short is None:
        return name[0], ""
    return (short[1] if short else ""), name[2]


def _value(rest: _Line) -> Value:
    if rest.take(_EQUALS):
        if called := rest.take(_CALL):
            return Value(default_function=called[1])
        if quoted := rest.take(_QUOTED):
            return Value(default=_unquoted(quoted))
        text = rest.take(_WORD)
        assert text is not None
        return Value(default=text[0])
    if called := rest.take(_CALLED_CHOICES):
        return Value(choices_function=called[2], check_choices=not called[1])
    if not rest.rest.startswith("["):
        return Value()
    choices = rest.take(_CHOICES)
    if choices is None:
        raise rest.wrong("the list of choices has no end", expected="`[a|b]`")
    names = tuple(_split_choices(choices[2]))
    if not all(names) or len(set(names)) < len(names):
        raise rest.wrong("a choice is empty or stands there twice", expected="`[a|b]`")
    return Value(choices=names, default=names[0] if choices[1] else None)


def _unquoted(match: re.Match[str]) -> str:
    return match[2] if match[1] is None else re.sub(r"\\(.)", r"\1", match[1])


def _split_choices(text: str) -> list[str]:
    parts = [""]
    for piece in _PIECES.findall(text):
        if piece == "|":
            parts.append("")
        else:
            parts[-1] += piece
    stripped = [part.strip() for part in parts]
    return [_unquoted(quoted) if (quoted := _QUOTED.fullmatch(part)) else part for part in stripped]


def _notations(rest: _Line) -> list[str]:
    found: list[str] = []
    while True:
        rest.skip_space()
        match = rest.take(_NOTATION)
        if match is None:
            return found
        found.append(match[1].strip() or "VALUE")


# --- the spec for the model -------------------------------------------------------------------------------


def _schema(argument: Argument, kind: str) -> tuple[Schema, str]:
    """Return the schema of a JSON property without its description, and a doubt about it."""
    if argument.kind == "flag":
        return ({"type": "integer", "minimum": 0} if argument.multiple else {"type": "boolean"}), ""
    doubt = ""
    one: Schema = {"type": kind}
    if argument.choices and argument.check_choices:
        values = [typed(choice, kind) for choice in argument.choices]
        if None in values:
            # A probable mistake of the author: offer the choices as texts instead of refusing the file.
            doubt, values = f"not every choice is of the type {kind}", list(argument.choices)
        one = enum(values)
    many = argument.multiple or argument.capture or argument.values > 1 or argument.more
    schema = array(one) if many else one
    if argument.values > 1:
        schema["minItems"] = argument.values
        if not (argument.multiple or argument.more):
            schema["maxItems"] = argument.values
    if argument.default is not None:
        words = argument.default.split(argument.comma) if argument.comma else [argument.default]
        values = [typed(word, kind) for word in words]
        if None in values:
            doubt = f"the default '{argument.default}' is not of the type {kind}"
        else:
            schema = described(schema, default=values if many else values[0])
    return schema, doubt


def typed(text: str, kind: str) -> Any:
    """Return the text as a value of that type; None if it does not fit."""
    if kind == "string":
        return text
    # At most 18 digits, so that the number fits 64 bits.
    if re.fullmatch(r"[+-]?\d{1,18}", text):
        return int(text)
    if kind == "number" and re.fullmatch(r"[+-]?(\d{1,100}\.?\d{0,100}|\.\d{1,100})([eE][+-]?\d{1,2})?", text):
        return float(text)
    return None
