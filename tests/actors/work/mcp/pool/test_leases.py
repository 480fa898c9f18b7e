"""What is one server, and what are two. Loki's case 95."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.work.mcp.client.connect import OfferedCapabilities
from callboard.actors.work.mcp.pool.pool import PoolKey, digest_of
from callboard.protocol.mcp.config import Server, ToolList

ABLE = OfferedCapabilities()
STDIO = Server(name="s", type="stdio", command="serve", args=("a", "b"), env={"A": "1", "B": "2"}, cwd="/x")
HTTP = Server(name="h", type="http", url="https://example.org/mcp", headers={"Authorization": "Bearer s3cret"})


def digest(server: Server, **changes: Any) -> str:
    return digest_of(msgspec.structs.replace(server, **changes), ABLE)


def test_95_the_order_of_arguments_counts() -> None:
    assert digest(STDIO, args=("b", "a")) != digest(STDIO)


@pytest.mark.parametrize(
    "changes",
    [
        {"command": "other"},
        {"args": ("a", "b", "")},
        {"args": ("ab",)},
        {"env": {"A": "1"}},
        {"env": {"A": "2", "B": "2"}},
        {"cwd": "/y"},
        {"cwd": None},
        {"inherit_env": False},
        {"max_message_bytes": 1},
        {"roots": ("/tmp",)},
    ],
    ids=str,
)
def test_95_what_a_process_is_made_of_counts(changes: dict[str, Any]) -> None:
    assert digest(STDIO, **changes) != digest(STDIO)


@pytest.mark.parametrize("program", [{"command": "./serve"}, {"command": "python3", "args": ("serve",)}], ids=str)
def test_a_program_named_by_a_relative_path_is_another_one_in_another_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: dict[str, Any]
) -> None:
    """Catalogues outlive the process: what the one offers must not be remembered of the other."""
    told: dict[str, set[str]] = {"near": set(), "on the path": set(), "said": set()}
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "serve").touch()
        monkeypatch.chdir(tmp_path / name)
        told["near"].add(digest(STDIO, cwd=None, **program))
        told["on the path"].add(digest(STDIO, cwd=None, command="serve"))
        told["said"].add(digest(STDIO, cwd="sub", **program))
    assert {what: len(digests) for what, digests in told.items()} == {"near": 2, "on the path": 1, "said": 2}


@pytest.mark.parametrize("words", [("serve", "data/new.db"), ("serve", "new.db"), ("serve", "--path=new.db")], ids=str)
def test_a_file_that_the_server_makes_does_not_change_its_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    before = digest(STDIO, cwd=None, args=words)
    for word in words[1:]:
        (tmp_path / word.rpartition("=")[2]).touch()
    assert digest(STDIO, cwd=None, args=words) == before


@pytest.mark.parametrize("changes", [{"url": "https://example.org/"}, {"headers": {}}, {"type": "sse"}], ids=str)
def test_what_a_session_is_made_of_counts(changes: dict[str, Any]) -> None:
    assert digest(HTTP, **changes) != digest(HTTP)


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "t"},
        {"env": {"B": "2", "A": "1"}},
        {"description": "d"},
        {"share": "never"},
        {"tools": ToolList(allow=("a",))},
        {"trust": "full"},
        {"timeout_seconds": 1.0},
        {"idle_timeout_seconds": 1.0},
        {"where": "mcp.json:7"},
    ],
    ids=str,
)
def test_what_only_we_know_does_not_count(changes: dict[str, Any]) -> None:
    assert digest(STDIO, **changes) == digest(STDIO)


def test_what_we_declare_to_the_server_counts_but_not_where_we_work() -> None:
    assert digest_of(STDIO, OfferedCapabilities(sampling=True)) != digest_of(STDIO, ABLE)
    assert digest_of(STDIO, OfferedCapabilities(elicitation=False)) != digest_of(STDIO, ABLE)
    assert digest_of(STDIO, OfferedCapabilities(roots=("file:///elsewhere",))) == digest_of(STDIO, ABLE)


def test_nothing_secret_comes_out() -> None:
    key = PoolKey(HTTP, digest(HTTP), "run-1")
    assert "s3cret" not in f"{key} {key!r} {key.digest}"
    assert len(key.digest) == 64


def test_keys_are_one_if_digest_and_sharer_are() -> None:
    assert PoolKey(STDIO, "d", "x") == PoolKey(HTTP, "d", "x")
    assert hash(PoolKey(STDIO, "d", "x")) == hash(PoolKey(HTTP, "d", "x"))
    assert len({PoolKey(STDIO, "d"), PoolKey(STDIO, "d", "x"), PoolKey(STDIO, "e"), PoolKey(STDIO, "d", "x")}) == 3
    assert PoolKey(STDIO, "d") != "d"


ARGS = st.lists(st.text(max_size=3), max_size=4).map(tuple)
ENV = st.dictionaries(st.text(max_size=2), st.text(max_size=2), max_size=3)


@given(ARGS, ARGS, ENV, ENV)
def test_two_digests_are_the_same_exactly_if_arguments_and_environment_are(
    a: tuple[str, ...], b: tuple[str, ...], c: dict[str, str], d: dict[str, str]
) -> None:
    assert (digest(STDIO, args=a, env=c) == digest(STDIO, args=b, env=d)) == (a == b and c == d)
