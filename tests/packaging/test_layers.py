"""The layers of docs/architecture.md and the tables of docs/contributing/modules.md.

Imports only go down, there are no cycles, and every package is listed.
"""

from __future__ import annotations

import ast
import re
from itertools import pairwise

import pytest

from .import_graph import (
    MODULES,
    ROOT,
    TOP_LEVEL,
    between_packages,
    cycle,
    import_graph,
    imported,
    layer_of,
    package_of,
    tree_of,
)

HEIGHTS = {name: height for height, name in enumerate(TOP_LEVEL)}
"""Heights of the top-level folders, 0 for the lowest layer."""

HEIGHTS_IN_ACTORS = {
    f"actors.{name}": height for height, name in enumerate(("io", "work", "engine", "views", "runs", "front"))
}

MOST_LINES = 1_000
MOST_LINES_OF_A_FUNCTION = 80


@pytest.mark.parametrize("folder", HEIGHTS)
def test_imports_only_go_down(folder: str) -> None:
    wrong = [
        f"{name} -> {target}"
        for name, targets in import_graph(for_types=True).items()
        for target in targets
        if name.split(".")[0] == folder and HEIGHTS[target.split(".")[0]] > HEIGHTS[folder]
    ]
    assert wrong == []


def test_only_cli_imports_what_the_package_exports() -> None:
    wrong = [
        name
        for name, path in MODULES.items()
        if not name.startswith("cli") and any(not target for target in imported(path, for_types=True))
    ]
    assert wrong == []


def test_every_package_of_actors_belongs_to_a_layer() -> None:
    assert {layer_of(name) for name in MODULES if name.startswith("actors.")} <= HEIGHTS_IN_ACTORS.keys()


def test_imports_between_the_layers_of_actors_only_go_down() -> None:
    wrong = [
        f"{name} -> {target}"
        for name, targets in import_graph(for_types=True).items()
        for target in targets
        if layer_of(name) in HEIGHTS_IN_ACTORS and layer_of(target) in HEIGHTS_IN_ACTORS
        if HEIGHTS_IN_ACTORS[layer_of(target)] > HEIGHTS_IN_ACTORS[layer_of(name)]
    ]
    assert wrong == []


def test_no_cycle_of_packages_even_with_imports_for_types() -> None:
    packages = between_packages(import_graph(for_types=True))
    found = cycle(packages)
    assert [packages[one][other] for one, other in pairwise(found)] == []


def test_no_cycle_of_modules_at_run_time() -> None:
    # An `__init__` imports modules of its own package. A module that imported through it would make a cycle.
    assert cycle(import_graph(for_types=False)) == []


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


def test_declarations_of_commands_import_no_implementation_at_the_top() -> None:
    wrong = [
        f"{name} -> {ast.unparse(node)}"
        for name, path in MODULES.items()
        if name.startswith("cli.commands.")
        for node in tree_of(path).body
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").startswith(("actions.", "control", "chat", "wizard"))
    ]
    assert wrong == []


@pytest.mark.parametrize("layer", HEIGHTS_IN_ACTORS)
def test_the_page_lists_every_package_and_no_other(layer: str) -> None:
    page = (ROOT / "docs" / "contributing" / "modules.md").read_text()
    _, _, rest = page.partition(f"### {layer.removeprefix('actors.')}/\n")
    section = re.split(r"^#", rest, maxsplit=1, flags=re.MULTILINE)[0]
    packages = {package_of(name) for name in MODULES if layer_of(name) == layer and name != layer}
    named = {name.rstrip("/") for name in re.findall(r"`([\w/]+)`", section)}
    lacking = {package.removeprefix(f"{layer}.") for package in packages} - named
    assert lacking == set(), "give them a row, or a place in one, in docs/contributing/modules.md"
    heads = {
        name for row in re.findall(r"^\| (`.*?) \|", section, re.MULTILINE) for name in re.findall(r"`([\w/]+)`", row)
    }
    assert {f"{layer}.{name.rstrip('/').replace('/', '.')}" for name in heads} - MODULES.keys() == set(), "gone"


def test_protocol_imports_neither_trio_nor_files() -> None:
    wrong = []
    for path in (ROOT / "protocol").rglob("*.py"):
        for node in ast.walk(tree_of(path)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            wrong += [f"{path.name}: {name}" for name in names if name.split(".")[0] in {"trio", "os", "pathlib", "io"}]
    assert wrong == []


def test_no_file_is_too_long() -> None:
    lines = {name: len(path.read_text().splitlines()) for name, path in MODULES.items()}
    assert {name: n for name, n in lines.items() if n > MOST_LINES} == {}


def test_no_function_is_too_long() -> None:
    lines = [
        (f"{name}.{node.name}", (node.end_lineno or 0) - node.lineno + 1)
        for name, path in MODULES.items()
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    assert {(name, n) for name, n in lines if n > MOST_LINES_OF_A_FUNCTION} == set()
