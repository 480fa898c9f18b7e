"""Themes: colours of rendered Markdown and of code.

A theme maps Pygments' token types to colours; text styles (`inline`) reuse some of these. Theme names come from
Pygments' styles and from Loki's documentation; TextMate files (`dark.tmTheme`, `light.tmTheme`) are themes
too. Colours are written in the
depth of the terminal: 24 bits, 256, or 16.

A TextMate file is a property list that maps scopes to colours. Each of Pygments' token types maps to a scope
(`keyword.control`, `string.quoted`). The rule with the longest matching selector wins, as in TextMate. Of a descendant
selector (`source.python string`) only the last part counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeAlias

from ....protocol.errors import ConfigError
from . import inline


@dataclass(frozen=True)
class Colour:
    """Text style: colour as `rrggbb` (empty for the terminal's own) and attributes."""

    rgb: str = ""
    bold: bool = False
    italic: bool = False
    underline: bool = False


Tokens: TypeAlias = Callable[[Any], Colour]


DARK, LIGHT = "monokai", "friendly"
"""Default Pygments styles."""

NAMES = {
    "dark": DARK,
    "light": LIGHT,
    "1337": "native",
    "1337-scheme": "native",
    "coldark": "nord",
    "coldark-dark": "nord",
    "dracula": "dracula",
    "github": "default",
    "gruvbox": "gruvbox-dark",
    "monokai-extended": "monokai",
    "monokai-extended-light": "friendly",
    "onehalf": "one-dark",
    "onehalfdark": "one-dark",
    "onehalflight": "xcode",
    "solarized": "solarized-dark",
    "sublime-snazzy": "dracula",
    "twodark": "one-dark",
    "visual-studio-dark-plus": "github-dark",
    "visual-studio-dark+": "github-dark",
    "zenburn": "zenburn",
}
"""Theme names of Loki's documentation, and the closest Pygments style of each."""


@dataclass
class Theme:
    """Colours as SGR parameters for one terminal.

    Args:
        tokens: colours of code; None for none.
        depth: number of colours: 16_777_216, 256 or 16.
        links: True if the terminal supports hyperlinks (OSC 8).
    """

    tokens: Tokens | None = None
    depth: int = 256
    links: bool = False
    _codes: dict[Any, str] = field(default_factory=dict, repr=False)

    def of_token(self, kind: Any) -> str:
        """Return the SGR parameters of a code token; empty for the terminal's own colours."""
        code = self._codes.get(kind)
        if code is None:
            code = self._codes[kind] = self._sgr(self.tokens(kind)) if self.tokens and kind is not None else ""
        return code

    def of_style(self, style: int) -> str:
        """Return the SGR parameters of a text style."""
        code = self._codes.get(style)
        if code is None:
            code = self._codes[style] = self._styled(style)
        return code

    def _styled(self, style: int) -> str:
        codes = [sgr for bit, sgr in _ATTRIBUTES if style & bit]
        role = next((name for bit, name in _ROLES if style & bit), None)
        if role is not None and self.tokens is not None:
            colour = self.tokens(_token(role))
            codes += [self._sgr(Colour(rgb=colour.rgb))] if colour.rgb else []
        return ";".join(codes)

    def _sgr(self, colour: Colour) -> str:
        codes = [code for on, code in ((colour.bold, "1"), (colour.italic, "3"), (colour.underline, "4")) if on]
        if colour.rgb:
            codes.append(foreground(colour.rgb, self.depth))
        return ";".join(codes)


_ATTRIBUTES = (
    (inline.BOLD | inline.HEADING, "1"),
    (inline.DIM | inline.RULE, "2"),
    (inline.ITALIC, "3"),
    (inline.LINK, "4"),
    (inline.STRIKE, "9"),
)
_ROLES = (
    (inline.CODE, "Literal.String"),
    (inline.MATH, "Literal.Number"),
    (inline.LINK, "Name.Function"),
    (inline.HEADING, "Keyword"),
)


def _token(name: str) -> Any:
    from pygments.token import string_to_tokentype

    return string_to_tokentype(name)


# --- choice of a theme --------------------------------------------------------------------------------------------


def chosen(settings: Mapping[str, Any], directory: Path, environ: Mapping[str, str]) -> Theme:
    """Return the theme selected by the settings `theme` and `light_theme`.

    Raises:
        ConfigError: no theme has that name, or its file can't be read.
    """
    return Theme(_tokens(settings, directory, environ), depth(environ), supports_links(environ))


def _tokens(settings: Mapping[str, Any], directory: Path, environ: Mapping[str, str]) -> Tokens:
    name = str(settings.get("theme") or "").strip()
    light = settings.get("light_theme")
    if light is None:
        light = is_light(environ)
    plain = name.lower().replace(" ", "-").replace("_", "-")
    if not name or plain in ("dark", "light"):
        side = plain or ("light" if light else "dark")
        file = directory / f"{side}.tmTheme"
        return of_text_mate(file) if file.exists() else of_pygments(NAMES[side])
    for file in (directory / f"{name}.tmTheme", directory / name):
        if "/" not in name and file.suffix == ".tmTheme" and file.exists():
            return of_text_mate(file)
    return of_pygments(_known(name, plain, light=bool(light)))


def _known(name: str, plain: str, *, light: bool) -> str:
    from pygments.styles import get_all_styles

    styles = set(get_all_styles())
    for candidate in (
        f"{plain}-light" if light else plain,
        NAMES.get(plain, ""),
        plain,
        plain.replace("-(", "-").rstrip(")"),
    ):
        if candidate in styles:
            return candidate
    if NAMES.get(f"{plain}-light" if light else plain, "") in styles:
        return NAMES[plain]
    near = get_close_matches(plain, sorted(styles | NAMES.keys()), n=3, cutoff=0.6)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    raise ConfigError(
        f"`theme: {name}`: there is no theme of that name{hint}\n"
        "    expected: dark, light, a style of Pygments (monokai, dracula, nord, ...), or the name of a .tmTheme file"
        " in the configuration directory"
    )


def of_pygments(name: str) -> Tokens:
    """Return the colours of a Pygments style."""
    from pygments.styles import get_style_by_name

    style = get_style_by_name(name)

    def style_of(kind: Any) -> dict[str, Any]:
        while True:
            try:
                return dict(style.style_for_token(kind))
            except KeyError:  # a token type defined by a lexer: use its parent
                kind = kind.parent

    usual = style_of(_token(""))["color"] or style_of(_token("Name"))["color"]

    def tokens(kind: Any) -> Colour:
        found = style_of(kind)
        # the default text colour: the terminal's own fits any background
        rgb = found["color"] if found["color"] != usual else ""
        return Colour(rgb or "", bool(found["bold"]), bool(found["italic"]), bool(found["underline"]))

    return tokens


# --- TextMate files -----------------------------------------------------------------------------------------

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


def of_text_mate(file: Path) -> Tokens:
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
    import plistlib
    from xml.parsers.expat import ExpatError

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


# --- terminal capabilities ----------------------------------------------------------------------------------


def depth(environ: Mapping[str, str]) -> int:
    """Return the number of colours of the terminal, from its environment."""
    if environ.get("COLORTERM", "").lower() in ("truecolor", "24bit"):
        return 1 << 24
    term = environ.get("TERM", "")
    if term.endswith("-direct") or term in ("xterm-kitty", "xterm-ghostty", "alacritty", "foot", "wezterm"):
        return 1 << 24
    return 256 if "256" in term else 16


def is_light(environ: Mapping[str, str]) -> bool:
    """Return True if the terminal declares a light background (`COLORFGBG`, set by rxvt, Konsole and others)."""
    return environ.get("COLORFGBG", "").rpartition(";")[2] in ("7", "15")


def supports_links(environ: Mapping[str, str]) -> bool:
    """Return True if the terminal is known to support OSC 8. Others would print the URL, or half of it."""
    if environ.get("TMUX") or environ.get("STY"):
        return False
    program, term = environ.get("TERM_PROGRAM", ""), environ.get("TERM", "")
    if program in ("iTerm.app", "WezTerm", "vscode", "ghostty", "Hyper", "Tabby", "WarpTerminal"):
        return True
    if term in ("xterm-kitty", "xterm-ghostty", "alacritty", "foot", "foot-extra", "contour"):
        return True
    vte = environ.get("VTE_VERSION", "")
    return bool(environ.get("WT_SESSION") or environ.get("KONSOLE_VERSION") or (vte.isdigit() and int(vte) >= 5000))


# --- SGR sequences ------------------------------------------------------------------------------------------


def foreground(rgb: str, depth: int) -> str:
    """Return the SGR parameters of a colour (`rrggbb`) on a terminal with `depth` colours."""
    red, green, blue = (int(rgb[at : at + 2], 16) for at in (0, 2, 4))
    if depth > 256:
        return f"38;2;{red};{green};{blue}"
    if depth == 256:
        return f"38;5;{_of_256(red, green, blue)}"
    return str(_of_16(red, green, blue))


_STEPS = (0, 95, 135, 175, 215, 255)


def _step(part: int) -> int:
    return min(range(6), key=lambda at: abs(_STEPS[at] - part))


def _of_256(red: int, green: int, blue: int) -> int:
    cube = [_step(part) for part in (red, green, blue)]
    grey = max(0, min(23, round((sum((red, green, blue)) / 3 - 8) / 10)))
    colours = {
        16 + 36 * cube[0] + 6 * cube[1] + cube[2]: tuple(_STEPS[at] for at in cube),
        232 + grey: (8 + 10 * grey,) * 3,
    }
    return _nearest(colours, (red, green, blue))


_SIXTEEN = {
    31: (205, 0, 0), 32: (0, 205, 0), 33: (205, 205, 0), 34: (60, 60, 238), 35: (205, 0, 205), 36: (0, 205, 205),
    37: (229, 229, 229), 90: (127, 127, 127), 91: (255, 80, 80), 92: (80, 255, 80), 93: (255, 255, 80),
    94: (92, 92, 255), 95: (255, 80, 255), 96: (80, 255, 255),
}  # fmt: skip


def _of_16(red: int, green: int, blue: int) -> int:
    return _nearest(_SIXTEEN, (red, green, blue))


def _nearest(colours: Mapping[int, tuple[int, ...]], wanted: tuple[int, int, int]) -> int:
    def distance(number: int) -> int:
        return sum((one - other) ** 2 for one, other in zip(colours[number], wanted, strict=True))

    return min(colours, key=distance)
