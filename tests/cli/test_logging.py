"""`CALLBOARD_LOG` decides what the log shows; without it, warnings only."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator

import pytest
from support.messages import says

from callboard.cli.logging import TRACE, configure, parse, wanted_by
from callboard.protocol.errors import ConfigError


@pytest.fixture(autouse=True)
def _put_back() -> Iterator[None]:
    root = logging.getLogger("callboard")
    before = (root.handlers, root.propagate, root.level)
    yield
    root.handlers, root.propagate, root.level = before
    logging.getLogger("callboard.graph").setLevel(logging.NOTSET)


def logged(monkeypatch: pytest.MonkeyPatch, wanted: str) -> str:
    """What a few log calls leave on stderr."""
    monkeypatch.setenv("CALLBOARD_LOG", wanted)
    monkeypatch.setenv("NO_COLOR", "1")
    stream = io.StringIO()
    configure(stream)
    graph, models = logging.getLogger("callboard.graph"), logging.getLogger("callboard.models")
    graph.log(TRACE, "state %s", {"secret": 1})
    graph.debug("step", extra={"step": 3})
    models.info("asked")
    models.warning("odd \x1b[2J")
    return stream.getvalue()


def test_only_warnings_without_the_variable_and_harmless_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    assert logged(monkeypatch, "") == "WARNING callboard.models: odd \\x1b[2J\n"


def test_a_level_shows_itself_and_what_is_worse(monkeypatch: pytest.MonkeyPatch) -> None:
    text = logged(monkeypatch, "debug")
    assert "step" in text
    assert "step=3" in text
    assert "asked" in text
    assert "secret" not in text
    assert "\x1b" not in text


def test_trace_shows_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "state {'secret': 1}" in logged(monkeypatch, "trace")


def test_one_logger_may_have_a_level_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    text = logged(monkeypatch, "error,graph=debug")
    assert "step=3" in text
    assert "asked" not in text
    assert "odd" not in text


def test_levels_are_read_by_logger() -> None:
    assert parse("") == {"callboard": logging.WARNING}
    assert parse("INFO, callboard.graph=Trace,models = off") == {
        "callboard": logging.INFO,
        "callboard.graph": TRACE,
        "callboard.models": logging.CRITICAL + 1,
    }


@pytest.mark.parametrize(
    ("environ", "text"),
    [
        ({"RUST_LOG": "loki::graph=debug,hyper=trace"}, "graph=debug"),
        ({"RUST_LOG": "loki=info, loki::graph::executor=trace"}, "info,graph=trace"),
        ({"RUST_LOG": "debug"}, ""),
        ({"RUST_LOG": "loki::graph=loud"}, ""),
        ({"RUST_LOG": "loki=debug", "CALLBOARD_LOG": "info"}, "info"),
        ({"RUST_LOG": "loki=debug", "LOKI_LOG_LEVEL": "warn"}, "warn"),
    ],
)
def test_what_is_meant_for_loki_is_understood(environ: dict[str, str], text: str) -> None:
    assert wanted_by(environ).text == text


def test_an_unknown_level_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=says("cli.logging.parse", level="loud")):
        parse("loud")
