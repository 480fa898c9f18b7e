"""`callboard usage`: what the user's commands and servers have spent on models."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_models import FakeModels

Callboard = Callable[..., "tuple[int, str, str]"]

KID = "name: kid\nstart: a\nnodes:\n  a: {type: llm, prompt: p, next: e}\n  e: {type: end}\n"
BOSS = (
    "name: boss\nstart: a\nnodes:\n  a: {type: llm, prompt: p, next: b}\n"
    "  b: {type: agent, agent: kid, prompt: p, next: e}\n  e: {type: end}\n"
)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state directory of the test's own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "callboard"


def test_nothing_was_spent_at_first(callboard: Callboard) -> None:
    code, out, err = callboard("usage")
    assert (code, err) == (0, "")
    assert out.startswith("nothing was spent on models since 2")
    assert json.loads(callboard("usage", "-o", "json")[1])["usage"] == []


def test_runs_are_in_it_under_the_agent_that_has_asked(callboard: Callboard, models: FakeModels) -> None:
    agents = Path(os.environ["CALLBOARD_CONFIG_DIR"]) / "agents"
    for name, text in {"boss": BOSS, "kid": KID}.items():
        (agents / name).mkdir(parents=True)
        (agents / name / "graph.yaml").write_text(text)
    assert callboard("run", "-q", "boss", "go")[0] == 0
    assert callboard("ask", "-q", "hi")[0] == 0
    told = json.loads(callboard("usage", "--by", "agent", "--by", "key", "-o", "json")[1])
    assert [(row["agent"], row["key"], row["requests"]) for row in told["usage"]] == [
        ("ask", "local", 1),
        ("boss", "local", 1),
        ("kid", "local", 1),
    ]
    assert told["total"]["requests"] == 3
    head, *rows, total = callboard("usage", "--by", "agent")[1].splitlines()
    assert head.split() == ["AGENT", "REQUESTS", "INPUT", "CACHED", "OUTPUT", "COST"]
    assert [row.split()[0] for row in rows] == ["ask", "boss", "kid"]
    assert total.split() == ["total", "3", "30", "0", "15", "unpriced"]


def test_a_book_that_can_not_be_read_is_an_error(callboard: Callboard, state: Path) -> None:
    state.mkdir(parents=True)
    (state / "usage.db").write_text("this is no database, and long enough to be seen as none" * 100)
    code, _, err = callboard("usage")
    assert code == 1
    assert f"what models have cost can't be read: {state / 'usage.db'}" in err
