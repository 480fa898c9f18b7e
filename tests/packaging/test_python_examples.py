"""The programs of examples/python: each runs, with a scripted model and no network, and is short.

The lines between `# region: peers N` and `# endregion` are those of the task, without what every program needs
(imports, functions, printing). N is the number of lines of the shortest of the same programs for pydantic-ai,
openai-agents, and LangGraph. `make types` checks the programs with mypy; tests/interop/test_python_api.py checks them
with pyright, and runs that for FastAPI.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
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
SLACK = 2
FASTAPI_LINES = 21


def loaded(name: str) -> ModuleType:
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


PLAYS: dict[str, tuple[Callable[[ChatRequest], Any], Callable[[ModuleType], Any], str]] = {
    "script": (lambda _: "A board.", lambda module: module.main("What is a callboard?"), "A board."),
    "tools": (
        after_tools([call("status", number=7), call("total", items=[{"name": "a", "count": 2}])], "Shipped."),
        lambda module: asyncio.run(module.main()),
        "Shipped.",
    ),
    "typed_result": (
        lambda _: {"good": True, "reasons": ["short"]},
        lambda module: asyncio.run(module.main()),
        "good ['short']",
    ),
    "streaming": (
        after_tools([call("add", a=1, b=2)], "It is 3."),
        lambda module: asyncio.run(module.main()),
        "[add: 3]\nIt is 3.\ndone",
    ),
    "tenants": (
        lambda _: "Me.",
        lambda module: asyncio.run(module.main({"acme": "a", "globex": "g"})),
        "acme Me.\nglobex Me.",
    ),
    "multi_agent": (
        lambda request: f"{len(request.messages)} said",
        lambda module: asyncio.run(module.main()),
        "1 said\n1 said [] dict_keys(['test:function'])",
    ),
    "observability": (lambda _: "A bot.", lambda module: asyncio.run(module.main()), "A bot."),
    "test_an_agent": (lambda _: "", lambda module: module.test_the_agent_uses_its_tool(), ""),
}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CALLBOARD_CONFIG_DIR", str(tmp_path / "config"))
    for kind in ("STATE", "CACHE", "DATA"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / kind.lower()))
    return tmp_path


@pytest.mark.parametrize("name", PLAYS)
async def test_a_program_runs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    answer, play, printed = PLAYS[name]
    with FunctionModel(answer).everywhere():
        await trio.to_thread.run_sync(partial(play, loaded(name)))
    assert capsys.readouterr().out.strip() == printed


HUMAN = f"""
import runpy, sys
from callboard.testing import FunctionModel, call
from callboard.chat import ToolTurn

def answer(request):
    results = [turn for turn in request.messages if isinstance(turn, ToolTurn)]
    asks = call("user__ask", question="Pay 7?", options=["yes", "no"])
    return [asks, [call("pay", amount=7)], "It is paid."][len(results)]

with FunctionModel(answer).everywhere():
    runpy.run_path({str(PROGRAMS / "human_in_the_loop.py")!r}, run_name="__main__")
"""


def test_a_question_outlives_its_process(home: Path) -> None:
    program = [sys.executable, "-c", HUMAN]
    env = {**os.environ, "PYTHONPATH": str(ROOT / ".types")}
    asking = subprocess.Popen([*program, "ask"], stdout=subprocess.PIPE, text=True, env=env, cwd=home)
    try:
        assert asking.stdout is not None
        run, question = asking.stdout.readline().split()
    finally:
        asking.send_signal(signal.SIGKILL)
        asking.communicate()
    answered = subprocess.run(
        [*program, "answer", run, question, "yes"],
        capture_output=True,
        text=True,
        env=env,
        cwd=home,
        timeout=120,
        check=False,
    )
    assert answered.stdout.strip() == "It is paid.", answered.stderr


def code_lines(text: str) -> int:
    return sum(bool(line.strip()) and not line.strip().startswith("#") for line in text.splitlines())


@pytest.mark.parametrize("file", sorted(PROGRAMS.glob("*.py")), ids=lambda file: file.stem)
def test_a_program_is_short(file: Path) -> None:
    text = file.read_text()
    if file.stem == "fastapi_stream":
        lines, most = code_lines(text.split('"""', 2)[2]), FASTAPI_LINES
    else:
        regions = re.findall(r"# region(?:: peers (\d+))?\n(.*?)# endregion", text, re.DOTALL)
        lines, most = sum(code_lines(lines) for _, lines in regions), int(regions[0][0])
    assert lines <= most + SLACK


def test_there_are_ten_programs() -> None:
    played = {*PLAYS, "human_in_the_loop", "fastapi_stream"}
    assert {file.stem for file in PROGRAMS.glob("*.py")} == played
    assert len(played) == 10
