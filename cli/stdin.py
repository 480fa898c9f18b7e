"""Standard input is prompt text and nothing else: all of it for PROMPT `-`, appended to PROMPT otherwise.

Whether somebody means to send text can't be known from a pipe: programs that start us often leave one open and
never write to it. So without `-` we wait a moment for the first byte and then go on without, saying so; once
text has begun to come, we read to its end. A terminal and `/dev/null` are never read unless `-` asks for it.
"""

from __future__ import annotations

import os
import select
import stat
import sys

from ..protocol.errors import UsageError

FIRST_BYTE_WITHIN = 0.2
"""Seconds an open pipe may stay silent before it is taken to have nothing to say."""

LIMIT = 10 * 1024 * 1024
"""Bytes of standard input that a prompt may hold."""

_CHUNK = 64 * 1024


def prompt_text(prompt: str | None, *, quiet: bool = False, fd: int = 0) -> str:
    """The run's prompt: the argument, standard input, or both with a newline between.

    Raises:
        UsageError: standard input holds more than `LIMIT` bytes.
    """
    if prompt == "-":
        return _read_to_end(fd)
    given = prompt or ""
    if not _may_hold_text(fd):
        return given
    if not _readable(fd, FIRST_BYTE_WITHIN):
        if not quiet:
            sys.stderr.write(
                "note: standard input is an open pipe with nothing in it, going on without (PROMPT - waits for it)\n"
            )
        return given
    piped = _read_to_end(fd)
    return "\n".join(part for part in (given, piped) if part)


def _may_hold_text(fd: int) -> bool:
    try:
        mode = os.fstat(fd).st_mode
    except OSError:  # closed
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)


def _readable(fd: int, seconds: float) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN | select.POLLHUP)
    return bool(poll.poll(seconds * 1000))


def _read_to_end(fd: int) -> str:
    pieces: list[bytes] = []
    size = 0
    try:
        while piece := os.read(fd, _CHUNK):
            size += len(piece)
            if size > LIMIT:
                raise UsageError(
                    f"standard input holds more than {LIMIT // 1024 // 1024} MiB, which is too much for a prompt;"
                    " put it into a file and let a script node read it"
                )
            pieces.append(piece)
    except OSError as error:
        raise UsageError(f"standard input can't be read: {error.strerror}") from error
    return b"".join(pieces).decode("utf-8", errors="replace").removesuffix("\n").removesuffix("\r")
