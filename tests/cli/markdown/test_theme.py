"""Themes: by name, from files, and in the colours that a terminal has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pygments.styles import get_all_styles
from pygments.token import Comment, Keyword, Name, Number, String, Token
from support.messages import has_message, says

from callboard.cli.render.markdown import inline
from callboard.cli.render.markdown.theme import (
    NAMES,
    Theme,
    chosen,
    depth,
    foreground,
    is_light,
    of_pygments,
    of_text_mate,
    supports_links,
)
from callboard.protocol.errors import ConfigError

TERM = {"TERM": "xterm-256color"}
THEME = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0"><dict>
<key>name</key><string>Mine</string>
<key>settings</key><array>
<dict><key>settings</key><dict><key>background</key><string>#272822</string>
 <key>foreground</key><string>#F8F8F2</string></dict></dict>
<dict><key>name</key><string>Comment</string><key>scope</key><string>comment</string>
 <key>settings</key><dict><key>foreground</key><string>#75715E</string><key>fontStyle</key><string>italic</string></dict></dict>
<dict><key>scope</key><string>string, source.python constant.numeric</string>
 <key>settings</key><dict><key>foreground</key><string>#abc</string></dict></dict>
<dict><key>scope</key><string>keyword - keyword.operator</string>
 <key>settings</key><dict><key>foreground</key><string>#11223344</string>
 <key>fontStyle</key><string>bold underline</string></dict></dict>
<dict><key>scope</key><string>keyword.control.import</string>
 <key>settings</key><dict><key>foreground</key><string>#010203</string></dict></dict>
</array></dict></plist>
"""


def theme_file(directory: Path, name: str = "dark", text: str = THEME) -> Path:
    file = directory / f"{name}.tmTheme"
    file.write_text(text)
    return file


def keyword_colour(theme: Theme) -> str:
    return theme.of_token(Keyword)


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_theme_of_lokis_pages_has_a_style(name: str, tmp_path: Path) -> None:
    assert NAMES[name] in set(get_all_styles())
    assert keyword_colour(chosen({"theme": name}, tmp_path, TERM))


@pytest.mark.parametrize(
    "name", ["monokai", "dracula", "Gruvbox Dark", "solarized_light", "Solarized (dark)", "TwoDark"]
)
def test_names_are_read_as_people_write_them(name: str, tmp_path: Path) -> None:
    assert keyword_colour(chosen({"theme": name}, tmp_path, TERM))


def test_light_and_dark_differ(tmp_path: Path) -> None:
    dark, light = chosen({}, tmp_path, TERM), chosen({"light_theme": True}, tmp_path, TERM)
    assert keyword_colour(dark) != keyword_colour(light)
    assert keyword_colour(chosen({"theme": "light"}, tmp_path, TERM)) == keyword_colour(light)
    assert keyword_colour(chosen({}, tmp_path, {**TERM, "COLORFGBG": "0;15"})) == keyword_colour(light)
    assert keyword_colour(chosen({"light_theme": False}, tmp_path, {**TERM, "COLORFGBG": "0;15"})) == keyword_colour(
        dark
    )


def test_a_theme_with_two_sides_takes_the_light_one(tmp_path: Path) -> None:
    light = chosen({"theme": "gruvbox", "light_theme": True}, tmp_path, TERM)
    assert keyword_colour(light) == Theme(of_pygments("gruvbox-light")).of_token(Keyword)


def test_a_name_that_is_none_says_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=says("cli.render.markdown.theme._known.2", name="drakula")) as error:
        chosen({"theme": "drakula"}, tmp_path, TERM)
    assert has_message(str(error.value), "cli.render.markdown.theme._known.2")


def test_files_of_the_directory_are_the_themes_dark_and_light(tmp_path: Path) -> None:
    theme_file(tmp_path)
    theme = chosen({}, tmp_path, {"COLORTERM": "truecolor"})
    assert theme.of_token(Comment.Single) == "3;38;2;117;113;94"
    assert theme.of_token(String.Double) == "38;2;170;187;204"
    assert theme.of_token(Number.Integer) == "38;2;170;187;204"
    assert theme.of_token(Keyword.Reserved) == "1;4;38;2;17;34;51"
    assert theme.of_token(Keyword.Namespace) == "38;2;1;2;3"
    assert theme.of_token(Name.Whatever) == ""
    assert keyword_colour(chosen({"light_theme": True}, tmp_path, TERM)) == keyword_colour(
        chosen({"theme": "light"}, tmp_path, TERM)
    )


def test_a_file_goes_by_its_name(tmp_path: Path) -> None:
    theme_file(tmp_path, "Mine")
    assert chosen({"theme": "Mine"}, tmp_path, {"COLORTERM": "24bit"}).of_token(Comment).endswith("117;113;94")
    (tmp_path / "below").mkdir()
    with pytest.raises(ConfigError):
        chosen({"theme": "below/Mine"}, tmp_path, TERM)


BOMB = (
    '<!DOCTYPE p [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>'
    "<plist><dict><key>settings</key><string>&b;</string></dict></plist>"
)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is not a property list"),
        ("not xml", "is not a property list"),
        ("<plist><dict><key>x</key><string>y</string></dict></plist>", "has no list `settings`"),
        ("<plist><array><string>y</string></array></plist>", "has no list `settings`"),
        ("<plist><dict><key>settings</key><array><string>y</string></array></dict></plist>", "entry 1 of `settings`"),
        (THEME.replace("#75715E", "brown"), "`foreground` of entry 2 of `settings` is 'brown'"),
        ("<plist>" + "<dict>" * 5_000, "is not a property list"),
        (BOMB, "is not a property list"),
        ("<!-- " + "x" * (1 << 20) + " -->" + THEME, "larger than 1 MB"),
    ],
    ids=["empty", "text", "no settings", "a list", "no entry", "colour", "open", "bomb", "large"],
)
def test_a_file_that_is_no_theme_is_an_error_with_its_name(tmp_path: Path, text: str, why: str) -> None:
    file = theme_file(tmp_path, text=text)
    with pytest.raises(ConfigError) as error:
        of_text_mate(file)
    assert str(file) in str(error.value)
    assert why in str(error.value)


def test_a_file_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    (tmp_path / "dark.tmTheme").mkdir()
    with pytest.raises(ConfigError, match=says("cli.render.markdown.theme._parsed.3", strerror="Is a directory")):
        chosen({}, tmp_path, TERM)


@pytest.mark.parametrize(
    ("environ", "colours"),
    [
        ({"TERM": "xterm", "COLORTERM": "truecolor"}, 1 << 24),
        ({"TERM": "xterm-kitty"}, 1 << 24),
        ({"TERM": "screen-256color"}, 256),
        ({"TERM": "linux"}, 16),
        ({}, 16),
    ],
)
def test_as_many_colours_as_the_terminal_has(environ: dict[str, str], colours: int) -> None:
    assert depth(environ) == colours


@pytest.mark.parametrize(
    ("rgb", "colours", "code"),
    [
        ("ff0000", 1 << 24, "38;2;255;0;0"),
        ("ff0000", 256, "38;5;196"),
        ("808080", 256, "38;5;244"),
        ("ff0000", 16, "31"),
        ("f8f8f2", 16, "37"),
        ("75715e", 16, "90"),
    ],
)
def test_a_colour_is_the_nearest_there_is(rgb: str, colours: int, code: str) -> None:
    assert foreground(rgb, colours) == code


@pytest.mark.parametrize(
    ("environ", "shown"),
    [
        ({"TERM": "xterm-kitty"}, True),
        ({"TERM_PROGRAM": "vscode"}, True),
        ({"VTE_VERSION": "7600"}, True),
        ({"VTE_VERSION": "4200"}, False),
        ({"TERM": "xterm-kitty", "TMUX": "/tmp/x"}, False),
        ({"TERM": "xterm-256color"}, False),
    ],
)
def test_addresses_go_behind_texts_only_where_that_is_known_to_work(environ: dict[str, str], shown: bool) -> None:
    assert supports_links(environ) is shown


def test_a_terminal_tells_its_background() -> None:
    assert is_light({"COLORFGBG": "0;15"})
    assert not is_light({"COLORFGBG": "15;0"})
    assert not is_light({"COLORFGBG": "15;default;0"})
    assert not is_light({})


@pytest.mark.parametrize("name", sorted(get_all_styles()))
def test_every_style_of_pygments_can_be_used(name: str) -> None:
    theme = Theme(of_pygments(name))
    kinds: list[Any] = [Token, Keyword, Comment, String, Token.Literal.Scalar.Plain]
    for code in [
        *map(theme.of_token, kinds),
        *(theme.of_style(bit) for bit in (inline.CODE, inline.LINK, inline.HEADING)),
    ]:
        assert all(part.isdecimal() for part in code.split(";") if code)


def test_a_colour_may_lack_its_mark_as_in_themes_that_people_share(tmp_path: Path) -> None:
    file = theme_file(tmp_path, text=THEME.replace("#75715E", "75715E").replace("#abc<", "abc<"))
    assert of_text_mate(file)(Comment).rgb == "75715e"
    assert of_text_mate(file)(String).rgb == "aabbcc"
