"""Standard input is prompt text: read when there is some, never waited for without end."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from callboard.cli import stdin
from callboard.cli.stdin import prompt_text
from callboard.protocol.errors import UsageError


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


def test_an_open_silent_pipe_does_not_hang_and_is_told_about(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stdin, "FIRST_BYTE_WITHIN", 0.01)
    with piped(None) as fd:
        assert prompt_text("hi", fd=fd) == "hi"
    assert "open pipe" in capsys.readouterr().err


def test_with_quiet_nothing_is_told(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdin, "FIRST_BYTE_WITHIN", 0.01)
    with piped(None) as fd:
        assert prompt_text(None, quiet=True, fd=fd) == ""
    assert capsys.readouterr().err == ""


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


def test_bytes_that_are_no_utf8_are_replaced() -> None:
    with piped(b"caf\xe9") as fd:
        assert prompt_text("-", fd=fd) == "caf�"


def test_more_than_the_limit_is_refused_before_it_fills_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdin, "LIMIT", 100_000)
    with piped(b"x" * 500_000) as fd, pytest.raises(UsageError, match="too much for a prompt"):
        prompt_text("-", fd=fd)
