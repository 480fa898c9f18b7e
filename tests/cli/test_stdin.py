"""Standard input is prompt text, read to its end: of pipes, sockets and files, before anything starts."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
import trio
from support.fake_models import FakeModels
from support.messages import says
from support.screen import Screen
from support.starter import CALLBOARD
from support.waiting import PATIENCE

from callboard.cli import stdin
from callboard.cli.stdin import prompt_text
from callboard.protocol.errors import UsageError

NOTE = "callboard: waiting for the end of standard input (a pipe); close it or run with </dev/null\n"


@contextmanager
def piped(content: bytes | None) -> Iterator[int]:
    """The reading end of a pipe that holds `content` and is closed; None for one that stays open and silent."""
    reader, writer = os.pipe()
    feeder = threading.Thread(target=_feed, args=(writer, content)) if content is not None else None
    if feeder:
        feeder.start()
    try:
        yield reader
    finally:
        os.close(reader)
        if feeder:
            feeder.join()
        else:
            os.close(writer)


def _feed(writer: int, content: bytes) -> None:
    try:
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(content)
    except BrokenPipeError:
        pass


def test_a_dash_takes_all_of_it() -> None:
    with piped(b"one\ntwo\n") as fd:
        assert prompt_text("-", fd=fd) == "one\ntwo"


def test_piped_text_is_appended_to_the_prompt_with_a_newline_between() -> None:
    with piped(b"the text\n") as fd:
        assert prompt_text("Sum this up:", fd=fd) == "Sum this up:\nthe text"


def test_piped_text_alone_is_the_prompt() -> None:
    with piped(b"the text") as fd:
        assert prompt_text(None, fd=fd) == "the text"


def test_an_empty_pipe_adds_nothing() -> None:
    with piped(b"") as fd:
        assert prompt_text("hi", fd=fd) == "hi"


def test_a_socket_is_read_to_its_end() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(b"by socket")
        ours.shutdown(socket.SHUT_WR)
        assert prompt_text("Sum up:", fd=theirs.fileno()) == "Sum up:\nby socket"


def test_a_terminal_is_not_read(screen: Screen) -> None:
    screen.press("typed\n")
    assert prompt_text("hi", fd=screen.slave) == "hi"


class SilentAtFirst:
    """`select.poll` of a pipe in which there is nothing until `PATIENCE` is over, or for ever is waited."""

    def __init__(self, feed: Callable[[], None]) -> None:
        self._poll = select.poll()
        self._feed = feed
        self._looks = 0

    def register(self, fd: int, events: int) -> None:
        self._poll.register(fd, events)

    def poll(self, timeout: float | None) -> list[tuple[int, int]]:
        self._looks += 1
        if timeout is not None and self._looks == 1:
            return []
        self._feed()
        return self._poll.poll(timeout)


@pytest.mark.parametrize(
    ("quiet", "told"),
    [
        (True, ""),
        (False, "callboard: waiting for the end of standard input (a pipe); close it or run with </dev/null\n"),
    ],
)
def test_a_pipe_that_is_silent_is_waited_for_and_told_about_unless_quiet(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, quiet: bool, told: str
) -> None:
    reader, writer = os.pipe()
    pieces = [b"la", b"te"]

    def feed() -> None:
        if pieces:
            os.write(writer, pieces.pop(0))
        else:
            os.close(writer)

    monkeypatch.setattr(
        stdin, "select", SimpleNamespace(poll=lambda: SilentAtFirst(feed), POLLIN=select.POLLIN, POLLHUP=select.POLLHUP)
    )
    assert prompt_text("hi", quiet=quiet, fd=reader) == "hi\nlate"
    assert capsys.readouterr().err == told
    os.close(reader)


async def started(nursery: trio.Nursery, config: Path) -> trio.Process:
    return await nursery.start(
        lambda task_status: trio.run_process(
            [*CALLBOARD, "ask", "summarise"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "CALLBOARD_CONFIG_DIR": str(config)},
            check=False,
            task_status=task_status,
        )
    )


async def waits(process: trio.Process) -> None:
    assert process.stderr is not None
    told = b""
    with trio.fail_after(PATIENCE):
        while b"</dev/null\n" not in told:
            told += await process.stderr.receive_some()
    assert told.decode() == NOTE


async def test_the_run_starts_when_a_slow_pipe_has_said_all(
    nursery: trio.Nursery, fake_model: FakeModels, tmp_path: Path
) -> None:
    process = await started(nursery, fake_model.config_dir(tmp_path / "config"))
    await waits(process)
    assert process.stdin is not None
    await process.stdin.send_all(b"important")
    await process.stdin.aclose()
    assert await process.wait() == 0
    assert [request.prompt for request in fake_model.requests] == ["summarise\nimportant"]


async def test_ctrl_c_ends_the_waiting_with_one_line(
    nursery: trio.Nursery, fake_model: FakeModels, tmp_path: Path
) -> None:
    process = await started(nursery, fake_model.config_dir(tmp_path / "config"))
    await waits(process)
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    told = b"".join([piece async for piece in process.stderr])
    assert told == b"callboard: Ctrl-C while waiting for standard input; nothing was started\n"
    assert await process.wait() == 130
    assert fake_model.requests == []


def test_a_file_is_read_and_dev_null_is_not(tmp_path: Path) -> None:
    file = tmp_path / "text"
    file.write_text("from a file\r\n")
    with file.open("rb") as opened:
        assert prompt_text(None, fd=opened.fileno()) == "from a file"
    with Path(os.devnull).open("rb") as nothing:
        assert prompt_text("hi", fd=nothing.fileno()) == "hi"


def test_a_closed_standard_input_is_as_good_as_none() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    os.close(writer)
    assert prompt_text("hi", fd=reader) == "hi"


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"caf\xe9 au lait", "café au lait"),
        ("grün".encode("utf-16"), "grün"),
        (("äöü " * 9).encode() + b"\xff", "äöü " * 9 + "\ufffd"),
    ],
    ids=["an old encoding", "UTF-16", "broken UTF-8"],
)
def test_text_in_another_encoding_is_read_as_attached_files_are(data: bytes, text: str) -> None:
    with piped(data) as fd:
        assert prompt_text("-", fd=fd) == text


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"\x89PNG\r\n\x1a\n" + bytes(100), "a PNG image"),
        (bytes(range(256)) * 80, "binary data"),
        (b"\x7fELF\x02\x01\x01" + bytes(500), "a program"),
    ],
)
def test_what_is_no_text_is_refused_with_the_words_of_attached_files(data: bytes, what: str) -> None:
    with piped(data) as fd, pytest.raises(UsageError, match=f"standard input can't be read: it is {what}, not text"):
        prompt_text("Sum up:", fd=fd)


def test_more_than_the_limit_is_refused_before_it_fills_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdin, "LIMIT", 100_000)
    with piped(b"x" * 500_000) as fd, pytest.raises(UsageError, match=says("cli.stdin._read_to_end.2")):
        prompt_text("-", fd=fd)
