"""Programs of the user's desktop: clipboard, editor, browser.

There are two ways to the clipboard, and neither is enough. A program (wl-copy, xclip, ...) reaches the clipboard of the
machine that runs this process, if it has a display. The terminal (escape sequence OSC 52) reaches the machine of the
user, also through ssh; but many terminals disable it, and none reports whether it obeyed. So both are used. tmux does
not forward OSC 52 by default; `tmux load-buffer -w` makes it forward the text.

The editor is `editor` of config.yaml, else `$VISUAL`, else `$EDITOR`, else vi. The browser is opened for a sign-in.
"""

from __future__ import annotations

import base64
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from ..protocol.errors import UsageError
from .render.text import redrawable

if TYPE_CHECKING:
    from ..supervisors import Actor

TERMINAL = "the terminal"
"""Name of OSC 52 in the result of `copy_text`."""

OSC_52_LIMIT = 74_994
"""Maximum bytes of a text for OSC 52: xterm's limit, the smallest known one."""

_PATIENCE = 5.0
"""Seconds that a program may take. Programs that serve the clipboard move to the background at once."""


@dataclass(frozen=True)
class _Program:
    """Program that reads the text from standard input, and the variable that shows that it has a clipboard."""

    command: tuple[str, ...]
    needs: str = ""
    encoding: str = "utf-8"


_PROGRAMS = (
    _Program(("pbcopy",)),
    _Program(("wl-copy",), needs="WAYLAND_DISPLAY"),
    _Program(("xclip", "-selection", "clipboard"), needs="DISPLAY"),
    _Program(("xsel", "--clipboard", "--input"), needs="DISPLAY"),
    _Program(("clip.exe",), encoding="utf-16"),  # without a byte order mark it would assume its code page
)
_TMUX = _Program(("tmux", "load-buffer", "-w", "-"), needs="TMUX")


def copy_text(text: str, terminal: TextIO | None = None) -> str:
    """Put the text on the clipboard; return the names of the programs that accepted it, and `TERMINAL` for OSC 52.

    Args:
        terminal: stream for OSC 52; by default stdout if that is a terminal.

    Raises:
        UsageError: there is no clipboard; the message says what to install.
    """
    taken = list(_by_programs(text, os.environ))
    if _by_terminal(text, sys.stdout if terminal is None else terminal):
        taken.append(TERMINAL)
    if not taken:
        raise UsageError(_no_way(text))
    return ", ".join(taken)


def _by_programs(text: str, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the programs that accepted the text: the first that has a clipboard, and tmux."""
    for program in _PROGRAMS:
        if _taken_by(program, text, environ):
            yield program.command[0]
            break
    if _taken_by(_TMUX, text, environ):
        yield "tmux"


def _taken_by(program: _Program, text: str, environ: Mapping[str, str]) -> bool:
    path = shutil.which(program.command[0])
    if path is None or (program.needs and not environ.get(program.needs)):
        return False
    try:
        ended = subprocess.run(
            [path, *program.command[1:]],
            input=text.encode(program.encoding, "replace"),
            stdout=subprocess.DEVNULL,  # a background process would keep a pipe open
            stderr=subprocess.DEVNULL,
            timeout=_PATIENCE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return ended.returncode == 0


def _by_terminal(text: str, stream: TextIO) -> bool:
    data = text.encode("utf-8", "replace")
    if not redrawable(stream) or os.environ.get("TERM") == "linux" or len(data) > OSC_52_LIMIT:
        return False
    stream.write(f"\x1b]52;c;{base64.b64encode(data).decode()}\x07")
    stream.flush()
    return True


def _no_way(text: str) -> str:
    if len(text.encode("utf-8", "replace")) > OSC_52_LIMIT:
        hint = "it is too long for the terminal's own clipboard access (OSC 52); install wl-clipboard, xclip or xsel"
    else:
        hint = "install wl-clipboard, xclip or xsel, or use a terminal with OSC 52"
    return f"the text can't be copied: no clipboard program is installed\n    {hint}"


def edit_new(file: Path, configured: str | None = None) -> bool:
    """Open a new file in the editor. Remove it and return False if the user does not change it.

    Raises:
        UsageError: there is no such editor, or it failed. An unchanged file is removed then too.
    """
    before = file.read_bytes()
    try:
        edit_file(file, configured)
    finally:
        unchanged = file.exists() and file.read_bytes() == before
        if unchanged:
            file.unlink()
    return not unchanged


def edit_file(file: Path, configured: str | None = None) -> None:
    """Open the file in the editor and wait until it is closed.

    Raises:
        UsageError: there is no such editor, or it failed.
    """
    chosen = configured or os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    try:
        code = subprocess.run([*shlex.split(chosen), str(file)], check=False).returncode
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"the editor '{chosen}' can't be started: {why}; set $EDITOR, or write {file}") from error
    if code:
        raise UsageError(f"the editor '{chosen}' failed with exit code {code}; {file} has what it saved")


def has_browser() -> bool:
    """True if a browser with a window can be opened on this machine."""
    return sys.platform != "linux" or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")))


def open_browser(me: Actor, url: str) -> None:
    """Open a page in a browser, without waiting: some browsers return only when the user closes them."""
    me.spawn(_open, url, name="browser", link=False)


async def _open(_me: Actor, url: str) -> None:
    import webbrowser

    import trio

    await trio.to_thread.run_sync(webbrowser.open, url, abandon_on_cancel=True)
