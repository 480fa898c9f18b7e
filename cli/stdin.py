"""Standard input as prompt text: all of it for PROMPT `-`, appended to PROMPT otherwise.

A pipe, a socket or a file is read to its end before anything starts. Nothing about a pipe shows whether more text
follows, and no waiting time does either: a build before the pipe may be silent for minutes, and a run with half of its
input is worse than one that starts late. So a parent that never closes the pipe blocks the process; after `PATIENCE`
seconds a line explains the wait. A terminal and `/dev/null` are never read unless `-` requests it, and a closed
standard input is ignored.
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
from typing import TYPE_CHECKING

import msgspec

from ..protocol.errors import UsageError

if TYPE_CHECKING:
    from ..protocol.requests import RunRequest

PATIENCE = 2.0
"""Seconds of waiting after which a line explains the wait."""

LIMIT = 10 * 1024 * 1024
"""Maximum bytes of standard input."""

_CHUNK = 64 * 1024


def prompt_text(prompt: str | None, *, quiet: bool = False, fd: int = 0) -> str:
    """Return the run's prompt: the argument, standard input, or both with a newline between. Blocks.

    Raises:
        UsageError: standard input has more than `LIMIT` bytes, or is not text.
        KeyboardInterrupt: Ctrl-C during the wait, which is printed.
    """
    if prompt == "-":
        return piped_text(quiet=quiet, fd=fd)
    given = prompt or ""
    if not _kind(fd):
        return given
    return "\n".join(part for part in (given, piped_text(quiet=quiet, fd=fd)) if part)


def with_standard_input(request: RunRequest, *, quiet: bool = False) -> RunRequest:
    """Return the request with its whole prompt and, separately, the typed part. Raises as `prompt_text` does."""
    given = "" if request.prompt == "-" else request.prompt
    prompt = prompt_text(request.prompt, quiet=quiet)
    return msgspec.structs.replace(request, prompt=prompt, typed=None if prompt == given else given)


def piped_text(*, quiet: bool = False, fd: int = 0) -> str:
    """Return all of standard input without its last newline. Raises as `prompt_text` does."""
    from ..actors.io.encodings import binary, decoded

    try:
        with _interruptible():
            data = _read_to_end(fd, quiet=quiet)
    except KeyboardInterrupt:
        sys.stderr.write("callboard: Ctrl-C while waiting for standard input; nothing was started\n")
        raise
    if what := binary(data):
        raise UsageError(f"standard input can't be read: it is {what}, not text")
    return decoded(data).removesuffix("\n")


@contextmanager
def _interruptible() -> Iterator[None]:
    """Raise `KeyboardInterrupt` on Ctrl-C during the block, so that it can be reported (see `start`)."""
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
    told = quiet or not kind  # at a terminal the user knows that the program waits for input
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
            except BlockingIOError:  # another program has made it non-blocking and may have read from it
                continue
            if not piece:
                return b"".join(pieces)
            size += len(piece)
            if size > LIMIT:
                raise UsageError(
                    f"standard input has more than {LIMIT // 1024 // 1024} MiB, which is too much for a prompt;"
                    " put it into a file and let a script node read it"
                )
            pieces.append(piece)
    except OSError as error:
        raise UsageError(f"standard input can't be read: {error.strerror}") from error
