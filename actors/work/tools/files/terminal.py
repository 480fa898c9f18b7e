"""A terminal without a person, for bash tools that write to one.

Loki's documents teach `name=$(input "Name?" 2>/dev/tty)`. Without a controlling terminal bash can't open `/dev/tty`,
and then it does not even call `input`. So a file that mentions `/dev/tty` gets a terminal (its runner, which leads a
session, takes it by opening it), and what is written there counts as printed. It gets no input; the questions go
over the socket like all others. Other files get none, because with one `ssh` or `git` would wait on it for a password
for good.
"""

from __future__ import annotations

import os
import tty
from collections.abc import Callable
from pathlib import Path
from typing import Self

import trio

from .....supervisors.tail import Tail

MENTIONED = b"/dev/tty"
CHUNK = 65_536


class Terminal:
    """Both ends of a pseudo terminal, until the end of the block.

    Attributes:
        name: the path that a session leader opens to have it.
    """

    def __init__(self, on_line: Callable[[str], None]) -> None:
        self._ours, self._theirs = os.openpty()
        tty.setraw(self._theirs)  # or each newline would come with a carriage return
        os.set_blocking(self._ours, False)
        self.name = os.ttyname(self._theirs)
        self._tail = Tail(on_line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._ours)
        os.close(self._theirs)

    @property
    def text(self) -> str:
        """The last of what was written to it."""
        return self._tail.text

    async def follow(self) -> None:
        """Read what is written, until cancelled."""
        while True:
            await trio.lowlevel.wait_readable(self._ours)
            self._read()

    def finish(self) -> None:
        """No writer is left."""
        while self._read():
            pass
        self._tail.close()

    def _read(self) -> bool:
        try:
            data = os.read(self._ours, CHUNK)
        except OSError:
            return False
        self._tail.feed(data)
        return bool(data)


def wants_one(file: Path) -> bool:
    """Whether this bash file mentions `/dev/tty`."""
    try:
        return MENTIONED in file.read_bytes()
    except OSError:
        return False
