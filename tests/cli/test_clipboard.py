"""A text on the clipboard: by the programs that are here, and by the terminal."""

from __future__ import annotations

import base64
import io
from pathlib import Path

import pytest
from support.messages import says

from callboard.cli import desktop
from callboard.protocol.errors import UsageError

VARIABLES = ("DISPLAY", "WAYLAND_DISPLAY", "TMUX")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only directory of PATH; `sh` and `cat` are there by their full names."""
    place = tmp_path / "bin"
    place.mkdir()
    monkeypatch.setenv("PATH", str(place))
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    return place


def add(place: Path, name: str, code: int = 0) -> Path:
    """A program that writes its arguments and what it reads beside itself."""
    file = place / name
    kept = place / f"{name}.kept"
    file.write_text(f'#!/bin/sh\n{{ echo "$*"; /bin/cat; }} > {kept}\nexit {code}\n')
    file.chmod(0o755)
    return kept


def sent(terminal: Terminal) -> bytes:
    text = terminal.getvalue()
    assert text.startswith("\x1b]52;c;")
    assert text.endswith("\x07")
    return base64.b64decode(text[7:-1])


def test_a_program_and_the_terminal_both_get_the_text(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = add(programs, "xclip")
    monkeypatch.setenv("DISPLAY", ":0")
    terminal = Terminal()
    assert desktop.copy_text("grüße\nzwei", terminal) == "xclip, the terminal"
    assert kept.read_text() == "-selection clipboard\ngrüße\nzwei"
    assert sent(terminal) == "grüße\nzwei".encode()


def test_a_program_without_a_display_is_not_asked(programs: Path) -> None:
    kept = [add(programs, name) for name in ("wl-copy", "xclip", "xsel")]
    assert desktop.copy_text("x", Terminal()) == "the terminal"
    assert not any(file.exists() for file in kept)


def test_the_next_program_is_asked_when_one_fails(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add(programs, "wl-copy", code=1)
    kept = add(programs, "xsel")
    monkeypatch.setenv("WAYLAND_DISPLAY", "wayland-0")
    monkeypatch.setenv("DISPLAY", ":0")
    assert desktop.copy_text("x", io.StringIO()) == "xsel"
    assert kept.read_text() == "--clipboard --input\nx"


def test_tmux_hands_the_text_on_which_it_would_not_by_the_sequence(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = add(programs, "tmux")
    monkeypatch.setenv("TMUX", "/tmp/tmux-0/default,1,0")
    assert desktop.copy_text("x", io.StringIO()) == "tmux"
    assert kept.read_text() == "load-buffer -w -\nx"


def test_windows_gets_a_text_that_says_its_encoding(programs: Path) -> None:
    kept = add(programs, "clip.exe")
    desktop.copy_text("grüße", io.StringIO())
    assert kept.read_bytes().partition(b"\n")[2].decode("utf-16") == "grüße"


@pytest.mark.parametrize("term", ["dumb", "linux"])
def test_a_terminal_that_does_not_know_the_sequence_is_not_sent_it(
    programs: Path, monkeypatch: pytest.MonkeyPatch, term: str
) -> None:
    monkeypatch.setenv("TERM", term)
    terminal = Terminal()
    with pytest.raises(UsageError, match=says("cli.desktop._no_way.2")):
        desktop.copy_text("x", terminal)
    assert terminal.getvalue() == ""


def test_what_is_too_long_for_terminals_needs_a_program(programs: Path) -> None:
    terminal = Terminal()
    with pytest.raises(UsageError, match=says("cli.desktop._no_way")):
        desktop.copy_text("x" * (desktop.OSC_52_LIMIT + 1), terminal)
    assert terminal.getvalue() == ""
    assert desktop.copy_text("x" * desktop.OSC_52_LIMIT, terminal) == "the terminal"


def test_a_text_that_utf_8_has_no_bytes_for_is_copied_without_them(programs: Path) -> None:
    terminal = Terminal()
    desktop.copy_text("a\udcffb", terminal)
    assert sent(terminal) == b"a?b"
