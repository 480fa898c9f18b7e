"""The programs of examples/python: each runs, with a scripted model and no network, and is short.

`MOST_LINES` are the lines of code of the shortest of the same programs for pydantic-ai, openai-agents, and LangGraph,
plus two. `make types` checks the programs with mypy; tests/interop/test_python_api.py checks them with pyright, and
runs that for FastAPI.
"""

from __future__ import annotations

import ast
import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import trio

from callboard.chat import ChatRequest, ToolTurn
from callboard.testing import FunctionModel, call

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "examples/python"
MOST_LINES = {
    "script": 3,
    "tools": 30,
    "typed_result": 12,
    "streaming": 12,
    "human_in_the_loop": 28,
    "tenants": 24,
    "multi_agent": 17,
    "test_an_agent": 8,
    "observability": 15,
    "fastapi_stream": 23,
}


def loaded(name: str) -> ModuleType:
    """Import a program, which runs it, except for the parts that are only in its `main`."""
    spec = spec_from_file_location(f"example_{name}", PROGRAMS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[module.__name__] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def after_tools(first: list[Any], last: Any) -> Callable[[ChatRequest], Any]:
    """A model that calls tools, and answers when it has the results."""
    return lambda request: last if any(isinstance(turn, ToolTurn) for turn in request.messages) else first


def in_turn(*replies: Any) -> Callable[[ChatRequest], Any]:
    """A model that gives one reply after the other."""
    waiting = list(replies)
    return lambda _: waiting.pop(0)


def with_orders(module: ModuleType) -> None:
    with sqlite3.connect("shop.db") as database:
        database.execute("CREATE TABLE orders (number INTEGER, state TEXT, address TEXT)")
        database.execute("INSERT INTO orders VALUES (7, 'in the shop', '2 Mole, Oslo')")
    asyncio.run(module.main())
    assert database.execute("SELECT address FROM orders").fetchall() == [("1 Quay, Bergen",)]
    database.close()


def nothing(_: ModuleType) -> None:
    """Most programs run when they are imported."""


PLAYS: dict[str, tuple[Callable[[ChatRequest], Any], Callable[[ModuleType], Any], str]] = {
    "script": (lambda _: "Paris.", nothing, "Paris."),
    "tools": (
        after_tools(
            [
                call("find_order", number=7),
                call("weather", city="Oslo"),
                call("redirect", number=7, to={"street": "1 Quay", "city": "Bergen"}),
            ],
            "It goes to Bergen.",
        ),
        with_orders,
        "It goes to Bergen.",
    ),
    "typed_result": (in_turn({"score": 9, "reasons": []}, {"score": 2, "reasons": ["old"]}), nothing, "2 old"),
    "streaming": (
        after_tools([call("count_words", text="to be or not to be")], "Six words."),
        nothing,
        "result='6'",
    ),
    "tenants": (
        after_tools([call("fs_write", path="note.txt", contents="I was here.")], "Noted."),
        lambda module: asyncio.run(module.main()),
        "done Noted. None\ndone Noted. None",
    ),
    "multi_agent": (
        lambda request: (
            "Too long."
            if request.system.startswith("Say")
            else "Cross it."
            if any(isinstance(turn, ToolTurn) for turn in request.messages)
            else call("review", draft="A bridge is a bridge.")
        ),
        nothing,
        "Cross it. ['reviewer']\n$0.0000 in 3 turns",
    ),
    "observability": (
        lambda request: f"Dear {request.messages[0].content.split()[-1]}",  # type: ignore[union-attr]  # a text
        nothing,
        "Dear [e-mail].",
    ),
    "test_an_agent": (lambda _: "", lambda module: module.test_the_clerk_asks_for_the_weather(), ""),
}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CALLBOARD_CONFIG_DIR", str(tmp_path / "config"))
    for kind in ("STATE", "CACHE", "DATA"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / kind.lower()))
    for tenant in ("ACME", "BOLT"):
        monkeypatch.setenv(f"{tenant}_KEY", f"key-of-{tenant}")
    monkeypatch.syspath_prepend(str(PROGRAMS))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", PLAYS)
async def test_a_program_runs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    answer, play, printed = PLAYS[name]
    with FunctionModel(answer).everywhere():
        await trio.to_thread.run_sync(lambda: play(loaded(name)))
    said = capsys.readouterr().out.strip()
    assert printed in said
    assert said == printed or name in ("streaming", "observability")  # they print objects


HUMAN = f"""
import runpy
from callboard.testing import FunctionModel, call
from callboard.chat import ToolTurn

def answer(request):
    results = [turn for turn in request.messages if isinstance(turn, ToolTurn)]
    return results[-1].content if results else call("refund", order=7)

with FunctionModel(answer).everywhere():
    runpy.run_path({str(PROGRAMS / "human_in_the_loop.py")!r}, run_name="__main__")
"""


def test_a_question_outlives_its_process(home: Path) -> None:
    program = [sys.executable, "-c", HUMAN, "run-refund7"]
    env = {**os.environ, "PYTHONPATH": str(ROOT / ".types")}
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": env, "cwd": home}
    with subprocess.Popen(program, **pipes) as asking:
        assert asking.stdout is not None
        assert asking.stdout.readline() == "Allow refund?\n"
        asking.send_signal(signal.SIGKILL)
    with subprocess.Popen(program, stderr=subprocess.PIPE, **pipes) as answered:
        told, errors = answered.communicate("yes\n", timeout=120)
    assert told.startswith("Allow refund?\n"), errors
    assert told.endswith("Order 7 is refunded.\n"), errors


def code_lines(text: str) -> int:
    """Return the number of lines with code: no blank lines, comments and docstrings."""
    tree = ast.parse(text)
    places = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docs = [node.body[0] for node in ast.walk(tree) if isinstance(node, places) and ast.get_docstring(node)]
    told = {line for node in docs for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}
    lines = enumerate(text.splitlines(), 1)
    return sum(bool(line.strip()) and not line.strip().startswith("#") and n not in told for n, line in lines)


@pytest.mark.parametrize("file", sorted(PROGRAMS.glob("*.py")), ids=lambda file: file.stem)
def test_a_program_is_short(file: Path) -> None:
    assert code_lines(file.read_text()) <= MOST_LINES[file.stem]


def test_there_are_ten_programs() -> None:
    played = {*PLAYS, "human_in_the_loop", "fastapi_stream"}
    assert {file.stem for file in PROGRAMS.glob("*.py")} == played == MOST_LINES.keys()
    assert len(played) == 10
