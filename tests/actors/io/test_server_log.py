"""The log of a server."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import trio
from support.access_keys import made_key

from callboard.actors.io.server_log import about, install


class Log:
    def __init__(self) -> None:
        self.stream = io.StringIO()

    def lines(self) -> list[dict[str, Any]]:
        for handler in logging.getLogger("callboard").handlers:
            handler.close()
        return [json.loads(line) for line in self.stream.getvalue().splitlines()]


@pytest.fixture
def written() -> Iterator[Log]:
    root = logging.getLogger("callboard")
    before = root.handlers, root.propagate, root.level
    yield Log()
    for handler in root.handlers:
        handler.close()
    root.handlers, root.propagate = before[0], before[1]
    root.setLevel(before[2])


async def test_a_line_says_what_it_belongs_to_also_in_the_tasks_below(written: Log) -> None:
    install(written.stream)
    log = logging.getLogger("callboard.somewhere")

    async def below() -> None:
        with about(session_id="s-1"):
            log.warning("in the middle of %s", "it", extra={"tokens": 5})

    with about(request_id="r-1", subject="alice", run="run-1"):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(below)
    log.info("outside")
    log.debug("not shown")
    inside, outside = written.lines()
    assert inside.pop("timestamp").endswith("Z")
    assert inside == {
        "level": "warning",
        "target": "callboard.somewhere",
        "message": "in the middle of it",
        "request_id": "r-1",
        "subject": "alice",
        "session_id": "s-1",
        "run": "run-1",
        "fields": {"tokens": 5},
    }
    assert "request_id" not in outside


def test_secrets_are_not_in_it_not_even_in_a_traceback(written: Log) -> None:
    key = made_key("alice")[0]
    install(written.stream)
    try:
        raise ValueError(f"bad key {key}")
    except ValueError:
        logging.getLogger("callboard.x").exception("with %s", key, extra={"header": f"Bearer {key}"})
    (line,) = written.lines()
    assert "ValueError: bad key [redacted]" in line["exception"]
    assert key not in json.dumps(line)


def test_what_json_does_not_know_is_shown_as_python_shows_it(written: Log) -> None:
    install(written.stream)
    logging.getLogger("callboard.x").warning("odd", extra={"thing": object, "bytes": {1, 2}})
    (line,) = written.lines()
    assert "object" in line["fields"]["thing"]


def test_as_text_a_message_can_t_pass_for_a_line_of_ours(written: Log) -> None:
    install(written.stream, format="text")
    with about(request_id="r-1"):
        logging.getLogger("callboard.x").warning("one\n2026 error callboard: forged \x1b[31m")
    written_lines = written.stream
    logging.getLogger("callboard").handlers[0].close()
    (line,) = written_lines.getvalue().splitlines()
    assert r"one\x0a2026" in line
    assert "\x1b" not in line
    assert "request_id=r-1" in line
