"""Themes: colours of rendered Markdown and of code.

A theme maps Pygments' token types to colours; text styles (`inline`) reuse some of these. Theme names come from
Pygments' styles and from Loki's documentation; TextMate files (`tm_theme`) are themes too. Colours are written in the
depth of the terminal: 24 bits, 256, or 16.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from ....protocol.errors import ConfigError
from . import inline
from .colours import Colour, Tokens, foreground

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


# --- which theme --------------------------------------------------------------------------------------------


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
        return _of_file(file) if file.exists() else of_pygments(NAMES[side])
    for file in (directory / f"{name}.tmTheme", directory / name):
        if "/" not in name and file.suffix == ".tmTheme" and file.exists():
            return _of_file(file)
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


def _of_file(file: Path) -> Tokens:
    from .tm_theme import read

    return read(file)


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
