"""Rows of Loki's two lists of checks, and the tests of each row.

A test covers the rows whose numbers are in its name: `test_p12_1_c10_1_...` covers row 1 of section 12 of the plan and
row 1 of section 10 of the checklist.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import yaml

HERE = Path(__file__).parent
_NUMBER = re.compile(r"(?<=_)([pc])(\d+)_(\d+)(?=_)|(?<=_)(i)(\d+)(?=_)")


class Row(NamedTuple):
    """A row. `reason`: why it does not apply to Callboard; "" if it applies."""

    number: str
    section: str
    does: str
    expects: str
    reason: str = ""


def rows() -> list[Row]:
    """All rows, in the order of the lists."""
    found = []
    for section, content in yaml.safe_load((HERE / "rows.yaml").read_text("utf-8")).items():
        title = content.pop("title")
        assert list(content) == list(range(1, len(content) + 1)), f"section {section} lacks a row"
        found += [Row(f"{section}.{number}", title, *texts) for number, texts in content.items()]
    return found


def numbers_in(name: str) -> list[str]:
    """The rows that a test's name names."""
    return [
        f"{list_.upper()}{section}.{row}" if list_ else f"I.{improvement}"
        for list_, section, row, _, improvement in _NUMBER.findall(name)
    ]


def by_row() -> dict[str, list[str]]:
    """The tests of each row, as `file::name`."""
    found = defaultdict(list)
    for path in sorted(HERE.glob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                for number in numbers_in(node.name):
                    found[number].append(f"{path.name}::{node.name}")
    return dict(found)
