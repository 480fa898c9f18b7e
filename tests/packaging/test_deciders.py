"""Deciders decide and nothing else: what they know comes with their messages, what they want is done by the driver."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DECIDERS = sorted(path for path in (ROOT / "actors").rglob("*decider.py"))
ENGINE = sorted([*(ROOT / "actors" / "engine").rglob("*.py"), *(ROOT / "actors" / "runs" / "batch").rglob("*.py")])

HELD = [
    ROOT / "actors" / path
    for path in (
        *(
            "engine/conversation/team.py",
            "work/team_messages.py",
            "work/transcript.py",
        ),
        *("work/agent/team_state.py", "work/agent/history.py"),
        *("engine/graph/node_exit.py", "engine/graph/result.py", "engine/graph/reducers.py"),
        *(f"engine/workflow/machine/{name}.py" for name in ("machine", "structure")),
    )
]
"""What deciders hold and ask: parts of what they decide, under the same rule."""

WORLD = {"trio", "time", "random", "secrets", "os", "io", "socket", "subprocess", "threading", "uuid", "pathlib"}
"""Clock, chance and the outside; `datetime` is data, its clock is looked for below."""

BEGINS = {"open_nursery", "start_soon", "spawn", "launch", "start_child"}
"""What begins something that runs beside its caller."""

ALLOWED = {
    "actors/engine/driver.py",  # the one that does it
    "actors/engine/workflow/nodes/python.py",  # watches over its process while it waits for it
}


def names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield (node.module or "").split(".")[0]


@pytest.mark.parametrize("path", DECIDERS + HELD, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_decider_has_no_clock_no_chance_and_no_world(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert set(names(tree)) & WORLD == set()
    waits = [node for node in ast.walk(tree) if isinstance(node, ast.Await | ast.AsyncFunctionDef | ast.AsyncWith)]
    clocks = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr in ("now", "utcnow")]
    assert waits + clocks == []


def test_graphs_workflows_conversations_maps_and_batches_each_have_one() -> None:
    packages = {path.parent.name for path in DECIDERS}
    assert {"graph", "workflow", "batch"} <= packages
    assert (ROOT / "actors" / "engine" / "graph" / "map_decider.py") in DECIDERS


def test_of_the_engine_only_the_driver_begins_what_runs_beside_it() -> None:
    begun = {
        f"{path.relative_to(ROOT)}: {node.func.attr}"
        for path in ENGINE
        if str(path.relative_to(ROOT)) not in ALLOWED
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in BEGINS
    }
    assert begun == set()
