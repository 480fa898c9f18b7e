"""Keys as they are pressed, by name: `up`, `enter`, `esc`, or the character itself."""

from __future__ import annotations

import codecs
import os
import re
from collections import deque

import trio

from ...render.early import READING, drop_pending

_SEQUENCE = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|O[@-~])")
_NAMES = {
    "\x1b[A": "up",
    "\x1b[B": "down",
    "\x1bOA": "up",
    "\x1bOB": "down",
    "\x1b[5~": "pgup",
    "\x1b[6~": "pgdn",
    "\x1b[H": "home",
    "\x1b[F": "end",
    "\x1bOH": "home",
    "\x1bOF": "end",
    "\x1b[1~": "home",
    "\x1b[4~": "end",
    "\r": "enter",
    "\n": "enter",
    "\x7f": "backspace",
    "\x08": "backspace",
    "\x04": "eof",
    "\x1b": "esc",
}
_ALONE = 0.05
"""Seconds after which an escape character is the key of that name, and no beginning of another."""


class Keys:
    """Reads a terminal that is in a mode without lines and echo.

    Args:
        source: its file descriptor.
    """

    def __init__(self, source: int) -> None:
        self._source = source
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._text = ""
        self._keys: deque[str] = deque()

    async def get(self) -> str:
        """The next key; `eof` when the terminal has gone."""
        while not self._keys:
            wait = _ALONE if self._text else float("inf")
            with trio.move_on_after(wait) as clock:
                await trio.lowlevel.wait_readable(self._source)
            if clock.cancelled_caught:
                self._split(whole=True)
                continue
            try:
                data = os.read(self._source, 1024)
            except OSError:
                data = b""
            if not data:
                return "eof"
            self._text += self._decoder.decode(data)
            self._split(whole=False)
        return self._keys.popleft()

    def forget(self) -> None:
        """Drop the keys that were pressed and not asked for yet: they were meant for what was on the screen then."""
        self._keys.clear()
        self._text = ""
        drop_pending(self._source)

    async def settle(self) -> None:
        """Wait until a person can have read what has just been drawn, and no key came meanwhile (`render.early`)."""
        self.forget()
        while True:
            with trio.move_on_after(READING) as quiet:
                await trio.lowlevel.wait_readable(self._source)
            if quiet.cancelled_caught:
                return
            try:
                if not os.read(self._source, 1024):
                    return
            except OSError:  # the terminal has gone, which `get` tells
                return

    def _split(self, *, whole: bool) -> None:
        """Take keys off the text; with `whole` nothing is left for later."""
        while self._text:
            if self._text[0] != "\x1b":
                length = 1
            elif found := _SEQUENCE.match(self._text):
                length = found.end()
            elif whole or (len(self._text) > 1 and self._text[1] not in "[O"):
                length = 1
            else:
                return
            part, self._text = self._text[:length], self._text[length:]
            name = _NAMES.get(part, part)
            if name.isprintable():  # a sequence that means nothing here is dropped
                self._keys.append(name)
