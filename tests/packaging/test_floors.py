"""The arrows of docs/architecture.md: imports only go down, and nothing goes in circles."""

from __future__ import annotations

import ast
import re
from itertools import pairwise

import pytest

from .arrows import HOUSE, MODULES, ROOT, arrows, between_rooms, circle, floor_of, imported, room_of, tree_of

FLOORS = {name: height for height, name in enumerate(HOUSE)}
"""The floors of the house, the lowest first."""

FLOORS_OF_ACTORS = {
    f"actors.{name}": height for height, name in enumerate(("io", "work", "engine", "views", "runs", "front"))
}

MOST_LINES = 1_000
MOST_LINES_OF_A_FUNCTION = 80


@pytest.mark.parametrize("floor", FLOORS)
def test_imports_only_go_down(floor: str) -> None:
    wrong = [
        f"{name} -> {target}"
        for name, targets in arrows(for_types=True).items()
        for target in targets
        if name.split(".")[0] == floor and FLOORS[target.split(".")[0]] > FLOORS[floor]
    ]
    assert wrong == []


def test_only_the_top_floor_knows_what_the_package_exports() -> None:
    wrong = [
        name
        for name, path in MODULES.items()
        if not name.startswith("cli") and any(not target for target in imported(path, for_types=True))
    ]
    assert wrong == []


def test_every_package_of_actors_stands_on_a_floor() -> None:
    assert {floor_of(name) for name in MODULES if name.startswith("actors.")} <= FLOORS_OF_ACTORS.keys()


def test_imports_between_the_floors_of_actors_only_go_down() -> None:
    wrong = [
        f"{name} -> {target}"
        for name, targets in arrows(for_types=True).items()
        for target in targets
        if floor_of(name) in FLOORS_OF_ACTORS and floor_of(target) in FLOORS_OF_ACTORS
        if FLOORS_OF_ACTORS[floor_of(target)] > FLOORS_OF_ACTORS[floor_of(name)]
    ]
    assert wrong == []


def test_no_room_imports_itself_by_a_detour_not_even_for_its_types() -> None:
    rooms = between_rooms(arrows(for_types=True))
    way = circle(rooms)
    assert [rooms[one][other] for one, other in pairwise(way)] == []


def test_no_module_imports_itself_by_a_detour() -> None:
    # Of what runs; a package's `__init__` gathers its own rooms, and going through it from inside would be the circle.
    assert circle(arrows(for_types=False)) == []


NAMED_OTHERWISE = {
    "auth": "`callboard auth`, declared in `credentials`; the vault imports no OAuth",
    "batch": "`callboard batch`, declared in `run`",
    "doctor": "`callboard doctor`, declared in `setup`",
    "macros": "`callboard macros`, declared in `macro`; it imports no chat",
    "mcp_status": "`callboard mcp status` and `reload`; they import no client",
    "missing_inputs": "shared by `run`, `tools`, `agents`, `kb` and Loki's command line",
    "tool_calls": "shared by `tools` and `mcp`; lists of tools import no engine",
    "vault": "`callboard vault`, declared in `credentials`",
}
"""Modules of cli/actions/ that are not named after a module of cli/commands/, with the commands that use them."""


def test_implementations_are_named_after_their_declarations() -> None:
    declarations = {name.removeprefix("cli.commands.") for name in MODULES if name.startswith("cli.commands.")}
    actions = {name.removeprefix("cli.actions.") for name in MODULES if name.startswith("cli.actions.")}
    assert actions - declarations == NAMED_OTHERWISE.keys()


def test_declarations_of_commands_import_no_work_at_the_top() -> None:
    wrong = [
        f"{name} -> {ast.unparse(node)}"
        for name, path in MODULES.items()
        if name.startswith("cli.commands.")
        for node in tree_of(path).body
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").startswith(("actions.", "control", "chat", "wizard"))
    ]
    assert wrong == []


@pytest.mark.parametrize("floor", FLOORS_OF_ACTORS)
def test_the_map_of_the_house_has_every_room_and_no_other(floor: str) -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    _, _, rest = page.partition(f"### {floor.removeprefix('actors.')}/\n")
    section = re.split(r"^(?:#|How a run goes)", rest, maxsplit=1, flags=re.MULTILINE)[0]
    rooms = {room_of(name) for name in MODULES if floor_of(name) == floor and name != floor}
    named = {name.rstrip("/") for name in re.findall(r"`([\w/]+)`", section)}
    lacking = {room.removeprefix(f"{floor}.") for room in rooms} - named
    assert lacking == set(), "give them a row, or a place in one, in docs/architecture.md"
    heads = {
        name for row in re.findall(r"^\| (`.*?) \|", section, re.MULTILINE) for name in re.findall(r"`([\w/]+)`", row)
    }
    assert {f"{floor}.{name.rstrip('/').replace('/', '.')}" for name in heads} - MODULES.keys() == set(), "gone"


def test_the_lowest_floor_knows_neither_trio_nor_files() -> None:
    wrong = []
    for path in (ROOT / "protocol").rglob("*.py"):
        for node in ast.walk(tree_of(path)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            wrong += [f"{path.name}: {name}" for name in names if name.split(".")[0] in {"trio", "os", "pathlib", "io"}]
    assert wrong == []


def test_no_file_has_outgrown_its_room() -> None:
    lines = {name: len(path.read_text().splitlines()) for name, path in MODULES.items()}
    assert {name: n for name, n in lines.items() if n > MOST_LINES} == {}


def test_no_function_is_longer_than_a_screen() -> None:
    lines = [
        (f"{name}.{node.name}", (node.end_lineno or 0) - node.lineno + 1)
        for name, path in MODULES.items()
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    assert {(name, n) for name, n in lines if n > MOST_LINES_OF_A_FUNCTION} == set()
