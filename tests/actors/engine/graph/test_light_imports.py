"""Checking, drawing and describing graphs costs no heavy import."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {"trio", "httpx", "rich", "prompt_toolkit", "jsonschema", "numpy", "tantivy", "usearch", "psutil", "structlog"}


@pytest.mark.parametrize(
    "module",
    [
        "callboard.protocol.yaml_tree",
        "callboard.protocol.graph",
        "callboard.protocol.agent",
        "callboard.actors.engine.graph.validate",
        "callboard.actors.engine.graph.draw",
        "callboard.actors.engine.graph.templates",
        "callboard.actors.engine.graph.reducers",
        "callboard.actors.engine.graph.compat",
        "callboard.actors.engine.graph.input_validation",
    ],
)
@pytest.mark.sample(3)
def test_the_language_of_graphs_imports_nothing_heavy(module: str) -> None:
    code = f"import sys, {module}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert HEAVY.intersection(name.partition(".")[0] for name in loaded) == set()
