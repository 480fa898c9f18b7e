"""`callboard usage`: what the user's commands and servers have spent on models."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from support.access_keys import made_key
from support.fake_models import FakeModels, Reply, Request
from support.messages import has_message

from callboard.actors.work.spending.book import _SCHEMA
from callboard.actors.work.spending.ledger import _HELD, _LEDGER

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


def test_knowledge_that_is_built_and_looked_into_by_hand_is_in_it(
    callboard: Callboard, models: FakeModels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(request: Request) -> Reply:
        rows = [{"index": number, "embedding": [3.0, 4.0]} for number, _ in enumerate(request.json["input"])]
        return Reply(raw=json.dumps({"data": rows, "usage": {"prompt_tokens": 7, "total_tokens": 7}}).encode())

    models.answer_with(answer)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = Path(os.environ["CALLBOARD_CONFIG_DIR"]) / "knowledge"
    folder.mkdir()
    (folder / "facts.yaml").write_text(f"embedding_model: fake:vectors\ndocuments: [{folder}/facts.txt]\n")
    (folder / "facts.txt").write_text("the sky is green")
    assert callboard("kb", "build", "facts", "-q")[0] == 0
    assert callboard("kb", "search", "facts", "what is the sky?")[0] == 0
    told = json.loads(callboard("usage", "--by", "model", "--by", "key", "-o", "json")[1])
    rows = [(row["model"], row["key"], row["requests"], row["input_tokens"]) for row in told["usage"]]
    assert rows == [("fake:vectors", "local", 2, 14)]


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
    assert total.split() == ["total", "3", "30", "0%", "15", "unpriced"]


def put(state: Path, *rows: tuple[str, str, str, str, int, int, int, int, float, int]) -> None:
    """Rows of day, key, agent, model, requests, input, cached, output, cost, unpriced; the first one makes the book."""
    state.mkdir(parents=True, exist_ok=True)
    with contextlib.closing(sqlite3.connect(state / "usage.db")) as book, book:
        book.execute(_SCHEMA)
        book.executemany(f"INSERT INTO usage VALUES ({', '.join('?' * 10)})", rows)


@pytest.fixture
def spent(state: Path) -> str:
    """A book with a dear model, one without a price and a free one; the day."""
    today = datetime.now(UTC).date().isoformat()
    put(
        state,
        (today, "local", "clerk", "claude:claude-opus-4-5-20251101", 78, 2_560_654, 1_323_696, 152_486, 10.63, 0),
        (today, "alice", "clerk", "cellar:meta-llama/Llama-3.3-70B-Instruct-FP8", 89, 3_066_897, 0, 174_070, 0.0, 89),
        (today, "local", "", "ollama:qwen3:8b", 1, 900, 0, 30, 0.0, 0),
        ("2020-01-01", "local", "", "ollama:qwen3:8b", 1, 900, 0, 30, 7.0, 0),
    )
    return today


def test_the_dearest_comes_first_and_no_price_is_not_the_same_as_free(callboard: Callboard, spent: str) -> None:
    assert callboard("usage", "--by", "model")[1].splitlines() == [
        "MODEL                                         REQUESTS      INPUT  CACHED   OUTPUT      COST",
        "claude:claude-opus-4-5-20251101                     78  2,560,654     51%  152,486    $10.63",
        "cellar:meta-llama/Llama-3.3-70B-Instruct-FP8        89  3,066,897      0%  174,070  unpriced",
        "ollama:qwen3:8b                                      1        900      0%       30         -",
        "total                                              168  5,628,451     23%  326,586   $10.63+",
    ]
    assert [line.split()[0] for line in callboard("usage", "--by", "agent")[1].splitlines()] == [
        *("AGENT", "clerk", "-", "total"),
    ]
    assert len(callboard("usage", "--days", "36500", "--by", "day")[1].splitlines()) == 4


@pytest.mark.parametrize(("width", "head"), [(100, 7), (80, 7), (70, 6), (60, 5), (30, 3)])
def test_a_narrow_terminal_has_fewer_figures_and_always_the_cost(
    callboard: Callboard, spent: str, monkeypatch: pytest.MonkeyPatch, width: int, head: int
) -> None:
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((width, 24)))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    lines = callboard("usage")[1].splitlines()
    assert max(map(len, lines)) <= width
    assert len(lines[0].split()) == head
    assert [line.split()[-1] for line in lines] == ["COST", "unpriced", "$10.63", "-", "$10.63+"]


def test_json_has_whole_figures(callboard: Callboard, spent: str) -> None:
    told = json.loads(callboard("usage", "--by", "day", "--by", "key", "--days", "1", "-o", "json")[1])
    assert (told["since"], told["until"], told["by"]) == (spent, spent, ["day", "key"])
    alice, local = told["usage"]
    assert (alice["day"], alice["key"], alice["unpriced"], alice["priced"]) == (spent, "alice", 89, False)
    assert (local["cached_tokens"], local["cost"], local["priced"]) == (1_323_696, 10.63, True)
    assert (told["total"]["requests"], told["total"]["priced"]) == (168, False)


def limit(state: Path, day: str) -> Path:
    """A ledger of today, and settings with limits; where those are."""
    _, key = made_key("alice", "read:runs")
    config = state.parent.parent / "limited"
    config.mkdir()
    auth = {"keys": [msgspec.to_builtins(key) | {"daily": {"max_cost": 5, "max_tokens": 1_000_000}}]}
    limits = {"per_subject_daily": {"max_cost": 1}, "daily": {"max_cost": 20}}
    (config / "config.yaml").write_text(json.dumps({"api": {"auth": auth, "limits": limits}}))
    state.mkdir(parents=True, exist_ok=True)
    with contextlib.closing(sqlite3.connect(state / "usage.db")) as book, book:
        book.execute(_LEDGER)
        book.execute(_HELD)
        spent = [(day, "alice", 120_000, 1.2), (day, "bob", 1, 1.01), (day, "", 121_000, 2.21)]
        book.executemany("INSERT INTO ledger VALUES (?, ?, ?, ?)", spent)
        book.execute("INSERT INTO held VALUES ('1-a', 1, 'alice', ?, 500, 0.3)", (day,))
    return config


def test_how_far_daily_limits_are_used_is_told_below(callboard: Callboard, spent: str, state: Path) -> None:
    config = limit(state, spent)
    code, out, err = callboard("usage", "--by", "key", "--config-dir", str(config))
    assert (code, err) == (0, "")
    assert out.splitlines()[-4:] == [
        "",
        "today, all together: $2.21 of $20.00 (11%)",
        "today, alice: $1.20 of $5.00 (24%), 120,000 of 1,000,000 tokens (12%), $0.3000 reserved, 500 tokens reserved",
        "today, bob: $1.01 of $1.00 (no more until 00:00 UTC)",
    ]
    told = json.loads(callboard("usage", "--config-dir", str(config), "-o", "json")[1])["daily"]
    assert [(each["subject"], each["cost"], each["max_cost"]) for each in told] == [
        *(("", 2.21, 20), ("alice", 1.2, 5), ("bob", 1.01, 1)),
    ]


def test_settings_with_errors_cost_the_daily_limits_alone(callboard: Callboard, spent: str, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("api: [")
    code, out, err = callboard("usage", "--by", "key", "--config-dir", str(tmp_path))
    assert code == 0
    assert out.splitlines()[-1].startswith("total")
    assert err.startswith("callboard: daily limits are not shown: ")


@pytest.mark.parametrize("days", ["0", "-1", "x", "36501"])
def test_days_are_a_number_from_one_on(callboard: Callboard, days: str) -> None:
    code, out, err = callboard("usage", "--days", days)
    assert (code, out) == (2, "")
    assert "--days" in err


def test_a_book_that_can_not_be_read_is_an_error(callboard: Callboard, state: Path) -> None:
    state.mkdir(parents=True)
    (state / "usage.db").write_text("this is no database, and long enough to be seen as none" * 100)
    code, _, err = callboard("usage")
    assert code == 1
    assert f"the record of costs can't be read: {state / 'usage.db'}: file is not a database" in err
    assert has_message(err, "cli.control.commands.usage.show_usage")
