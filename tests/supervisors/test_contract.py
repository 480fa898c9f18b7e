"""docs/kernel.md and its tests agree: every numbered guarantee has a test of that number, and the other way round."""

from __future__ import annotations

import ast
import re
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parent.parent / "docs" / "kernel.md"


def promised() -> list[int]:
    return [int(number) for number in re.findall(r"^(\d+)\. ", PAGE.read_text(), flags=re.MULTILINE)]


def with_tests() -> set[int]:
    names = [
        node.name
        for file in HERE.glob("test_*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    return {int(found[1]) for name in names if (found := re.match(r"test_(\d+)_", name))}


def test_the_guarantees_are_numbered_without_gaps() -> None:
    numbers = promised()
    assert numbers == list(range(1, len(numbers) + 1))


def test_every_guarantee_has_a_test_of_its_number_and_every_such_test_a_guarantee() -> None:
    assert with_tests() == set(promised())


def test_the_page_says_how_many_there_are() -> None:
    assert f"{len(promised())} numbered guarantees" in PAGE.read_text()
