"""Figures in few characters, the run that a word means, and the server that the flags mean."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.messages import says

from callboard.actors.front.server.token_file import ServerFile, write_server
from callboard.cli.control.client import matching_id
from callboard.cli.control.figures import amount, money
from callboard.cli.control.servers import ControlServer, Where, find_server
from callboard.protocol.errors import NoServer, UsageError


@given(st.integers(0, 10**12))
def test_an_amount_takes_seven_columns_at_most(number: int) -> None:
    assert len(amount(number)) <= 7


@pytest.mark.parametrize(("cost", "shown"), [(0, ""), (0.01234, "$0.0123"), (1234.5, "$1,234.50")])
def test_money_is_exact_where_it_is_little(cost: float, shown: str) -> None:
    assert money(cost) == shown


def test_a_run_goes_by_the_beginning_of_its_id() -> None:
    ids = ["run-ab12", "run-ab34", "run-cd", "run-cdef"]
    assert matching_id("run-ab12", ids) == "run-ab12"
    assert matching_id("ab1", ids) == "run-ab12"
    assert matching_id("run-cd", ids) == "run-cd"
    assert matching_id("x", ids) is None
    with pytest.raises(
        UsageError, match=says("cli.control.client.matching_id", kind="run", shown="run-ab12, run-ab34")
    ):
        matching_id("ab", ids)


@pytest.fixture
def state(tmp_path: Path) -> dict[str, str]:
    return {"XDG_STATE_HOME": str(tmp_path), "HOME": str(tmp_path)}


def serve(state: dict[str, str], port: int, started: float, pid: int | None = None) -> None:
    pid = os.getpid() if pid is None else pid
    write_server(ServerFile(url=f"http://127.0.0.1:{port}", token=f"t{port}", pid=pid, started=started), port, state)


def test_without_a_server_it_says_how_to_get_one(state: dict[str, str]) -> None:
    with pytest.raises(NoServer, match=says("cli.control.servers.find_server")):
        find_server(Where(), state)
    serve(state, 1, 5, pid=2**22 + 1)
    with pytest.raises(NoServer, match=says("cli.control.servers.find_server")):
        find_server(Where(), state)


def test_the_newest_that_lives_is_meant(state: dict[str, str]) -> None:
    serve(state, 1, 50)
    serve(state, 2, 70)
    serve(state, 3, 60)
    found = find_server(Where(), state)
    assert found == ControlServer(
        url="http://127.0.0.1:2", host="127.0.0.1", port=2, path="/ws", token="t2", pid=os.getpid(), others=2
    )
    assert not found.has_ended


def test_a_url_gets_the_token_that_its_server_has_left(state: dict[str, str]) -> None:
    serve(state, 1, 50)
    serve(state, 2, 70)
    assert find_server(Where(url="http://127.0.0.1:1/"), state).token == "t1"
    assert find_server(Where(url="127.0.0.1:1", token="mine"), state).token == "mine"
    assert find_server(Where(url="http://127.0.0.1:9"), state | {"CALLBOARD_TOKEN": "e"}).token == "e"


@pytest.mark.parametrize(
    ("url", "shown", "host", "port", "path", "tls"),
    [
        ("http://a:1", "http://a:1", "a", 1, "/ws", False),
        ("wss://a.example/x/ws", "https://a.example:443/x", "a.example", 443, "/x/ws", True),
        ("https://a.example/x/", "https://a.example:443/x", "a.example", 443, "/x/ws", True),
        ("http://[::1]:80", "http://[::1]:80", "::1", 80, "/ws", False),
        ("a:1", "http://a:1", "a", 1, "/ws", False),
    ],
)
def test_a_url_names_a_websocket(
    state: dict[str, str], url: str, shown: str, host: str, port: int, path: str, tls: bool
) -> None:
    found = find_server(Where(url=url), state)
    assert (found.url, found.host, found.port, found.path, found.tls) == (shown, host, port, path, tls)


@pytest.mark.parametrize("url", ["", "ftp://a", "http://", "http://a:b", "http://a:99999", "http://[::1"])
def test_what_is_no_url_is_refused(state: dict[str, str], url: str) -> None:
    with pytest.raises(UsageError, match=says("cli.control.servers._at")):
        find_server(Where(url=url), state)


@pytest.mark.parametrize(
    ("cost", "priced", "shown"),
    [
        (0.0, True, ""),
        (0.0, False, "unpriced"),
        (0.0123, True, "$0.0123"),
        (0.0123, False, "$0.0123+"),
        (12.3, False, "$12.30+"),
    ],
)
def test_what_is_not_known_is_never_shown_as_nothing(cost: float, priced: bool, shown: str) -> None:
    assert money(cost, priced) == shown
