"""Standard input is prompt text and nothing else: all of it for PROMPT `-`, appended to PROMPT otherwise.

What comes through a pipe, a socket or from a file is read to its end before anything starts. Nothing about a pipe says
whether text is still to come, and no time that we might wait says it either: a build in front of the pipe may be silent
for minutes, and a run on half of what was piped in is worse than one that starts late. So a program that starts us with
a pipe that it never closes makes us wait; after `PATIENCE` seconds a line tells what for. A terminal and `/dev/null`
are never read unless `-` asks for it, and a closed standard input is as good as none.
"""

from __future__ import annotations

import os
import select
import signal
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from ..protocol.errors import UsageError

PATIENCE = 2.0
"""Seconds of waiting after which a line tells what is waited for."""

LIMIT = 10 * 1024 * 1024
"""Bytes of standard input that a prompt may hold."""

_CHUNK = 64 * 1024


def prompt_text(prompt: str | None, *, quiet: bool = False, fd: int = 0) -> str:
    """The run's prompt: the argument, standard input, or both with a newline between.

    Raises:
        UsageError: standard input holds more than `LIMIT` bytes, or no text.
        KeyboardInterrupt: Ctrl-C came during the wait, which is printed.
    """
    if prompt == "-":
        return piped_text(quiet=quiet, fd=fd)
    given = prompt or ""
    if not _kind(fd):
        return given
    return "\n".join(part for part in (given, piped_text(quiet=quiet, fd=fd)) if part)


def piped_text(*, quiet: bool = False, fd: int = 0) -> str:
    """All of standard input, without the newline at its end. Raises as `prompt_text` does."""
    from ..actors.io.encodings import binary, decoded

    try:
        with _interruptible():
            data = _read_to_end(fd, quiet=quiet)
    except KeyboardInterrupt:
        sys.stderr.write("callboard: Ctrl-C while standard input was waited for; nothing was started\n")
        raise
    if what := binary(data):
        raise UsageError(f"standard input can't be read: it is {what}, not text")
    return decoded(data).removesuffix("\n")


@contextmanager
def _interruptible() -> Iterator[None]:
    """Ctrl-C is an exception for the length of the block, so that it can be told (see `start`)."""
    before = signal.getsignal(signal.SIGINT)
    if before == signal.SIG_IGN:
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _kind(fd: int) -> str:
    try:
        mode = os.fstat(fd).st_mode
    except OSError:  # closed
        return ""
    kinds = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFREG: "a file"}
    return kinds.get(stat.S_IFMT(mode), "")


def _read_to_end(fd: int, *, quiet: bool) -> bytes:
    pieces: list[bytes] = []
    size = 0
    poll = select.poll()
    poll.register(fd, select.POLLIN | select.POLLHUP)
    kind = _kind(fd)
    told = quiet or not kind  # at a terminal it is clear who waits for whom
    until = time.monotonic() + PATIENCE
    try:
        while True:
            if not poll.poll(None if told else max(until - time.monotonic(), 0) * 1000):
                told = True
                sys.stderr.write(
                    f"callboard: waiting for the end of standard input ({kind}); close it or run with </dev/null\n"
                )
                sys.stderr.flush()
                continue
            try:
                piece = os.read(fd, _CHUNK)
            except BlockingIOError:  # it was opened so by another program; what was there has gone to that
                continue
            if not piece:
                return b"".join(pieces)
            size += len(piece)
            if size > LIMIT:
                raise UsageError(
                    f"standard input holds more than {LIMIT // 1024 // 1024} MiB, which is too much for a prompt;"
                    " put it into a file and let a script node read it"
                )
            pieces.append(piece)
    except OSError as error:
        raise UsageError(f"standard input can't be read: {error.strerror}") from error
