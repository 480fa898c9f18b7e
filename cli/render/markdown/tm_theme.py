"""TextMate themes (`dark.tmTheme`, `light.tmTheme`): property lists that map scopes to colours.

Each of Pygments' token types maps to a scope (`keyword.control`, `string.quoted`). The rule with the longest matching
selector wins, as in TextMate. Of a descendant selector (`source.python string`) only the last part counts.
"""

from __future__ import annotations

import plistlib
import re
from pathlib import Path
from typing import Any
from xml.parsers.expat import ExpatError

from ....protocol.errors import ConfigError
from .colours import Colour, Tokens

_LARGEST = 1 << 20
_HEX = re.compile(r"#?(?:([0-9a-fA-F]{6})(?:[0-9a-fA-F]{2})?|([0-9a-fA-F]{3}))\Z")
"""Colour values as TextMate accepts them: some published themes omit the `#`."""

_SCOPES = {
    "Comment": "comment.line",
    "Comment.Preproc": "keyword.control.import",
    "Keyword": "keyword.control",
    "Keyword.Constant": "constant.language",
    "Keyword.Declaration": "storage.type",
    "Keyword.Namespace": "keyword.control.import",
    "Keyword.Type": "storage.type",
    "Name.Attribute": "entity.other.attribute-name",
    "Name.Builtin": "support.function",
    "Name.Builtin.Pseudo": "variable.language",
    "Name.Class": "entity.name.class",
    "Name.Constant": "constant.other",
    "Name.Decorator": "entity.name.function.decorator",
    "Name.Exception": "support.class",
    "Name.Function": "entity.name.function",
    "Name.Namespace": "entity.name.namespace",
    "Name.Tag": "entity.name.tag",
    "Name.Variable": "variable.other",
    "Literal.Number": "constant.numeric",
    "Literal.String": "string.quoted",
    "Literal.String.Doc": "comment.block.documentation",
    "Literal.String.Escape": "constant.character.escape",
    "Literal.String.Regex": "string.regexp",
    "Operator": "keyword.operator",
    "Operator.Word": "keyword.operator",
    "Punctuation": "punctuation",
    "Error": "invalid.illegal",
    "Generic.Deleted": "markup.deleted",
    "Generic.Inserted": "markup.inserted",
    "Generic.Heading": "markup.heading",
    "Generic.Emph": "markup.italic",
    "Generic.Strong": "markup.bold",
}
"""Scope of each Pygments token type."""


def read(file: Path) -> Tokens:
    """Return the colours of a theme file.

    Raises:
        ConfigError: the file can't be read, or is not a theme.
    """
    rules = _rules(file, _parsed(file))
    found: dict[str, Colour] = {}

    def tokens(kind: Any) -> Colour:
        name = str(kind).removeprefix("Token.").removeprefix("Token")
        while name:
            if name in found:
                return found[name]
            if name in _SCOPES and (colour := _of_scope(rules, _SCOPES[name])) is not None:
                found[name] = colour
                return colour
            name = name.rpartition(".")[0]
        return Colour()

    return tokens


def _parsed(file: Path) -> list[Any]:
    expected = "expected: a TextMate theme, an XML property list with a list `settings`"
    try:
        if file.stat().st_size > _LARGEST:
            raise ConfigError(f"{file} can't be read: it is larger than 1 MB\n    {expected}")
        parsed = plistlib.loads(file.read_bytes())
    except OSError as error:
        raise ConfigError(f"{file} can't be read: {error.strerror}") from error
    except (
        ExpatError,
        plistlib.InvalidFileException,
        ValueError,
        KeyError,
        IndexError,
        TypeError,
        OverflowError,
    ) as error:
        raise ConfigError(f"{file} is not a property list: {error}\n    {expected}") from error
    settings = parsed.get("settings") if isinstance(parsed, dict) else None
    if not isinstance(settings, list):
        raise ConfigError(f"{file} is not a theme: it has no list `settings`\n    {expected}")
    return settings


def _rules(file: Path, settings: list[Any]) -> list[tuple[str, Colour]]:
    rules: list[tuple[str, Colour]] = []
    for number, entry in enumerate(settings, 1):
        if not isinstance(entry, dict) or not isinstance(entry.get("settings"), dict):
            raise ConfigError(f"{file}: entry {number} of `settings` has no dictionary `settings`")
        scope = entry.get("scope")
        if not isinstance(scope, str):
            continue  # global colours of the theme: the terminal's own are used instead
        colour = _colour(file, number, entry["settings"])
        rules += [
            (last, colour) for part in scope.split(",") if (last := part.split(" -")[0].strip().rpartition(" ")[2])
        ]
    return rules


def _colour(file: Path, number: int, settings: dict[str, Any]) -> Colour:
    said = settings.get("foreground", "")
    found = _HEX.match(said) if isinstance(said, str) else None
    if said and found is None:
        raise ConfigError(f"{file}: `foreground` of entry {number} of `settings` is {said!r}\n    expected: #rrggbb")
    rgb = "" if found is None else found[1] or "".join(2 * digit for digit in found[2])
    style = str(settings.get("fontStyle") or "").split()
    return Colour(rgb.lower(), "bold" in style, "italic" in style, "underline" in style)


def _of_scope(rules: list[tuple[str, Colour]], scope: str) -> Colour | None:
    matching = [rule for rule in rules if scope == rule[0] or scope.startswith(rule[0] + ".")]
    if not matching:  # a rule for a more specific scope is better than none
        matching = [rule for rule in rules if rule[0].startswith(scope + ".")][:1]
    return max(matching, key=lambda rule: len(rule[0]))[1] if matching else None
