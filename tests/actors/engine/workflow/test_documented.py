"""docs/compatibility.md tells every difference between the two dialects of workflows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from callboard.actors.engine.workflow.rules import WorkflowRules
from callboard.protocol.workflow.dialect import Dialect

PAGE = (Path(__file__).parents[4] / "docs" / "compatibility.md").read_text()
TABLES = PAGE[PAGE.index("## DevAll") : PAGE.index("## From later versions")]


@pytest.mark.parametrize("flags", [Dialect, WorkflowRules])
def test_every_flag_has_a_row_and_a_reason(flags: type[Dialect | WorkflowRules]) -> None:
    names = flags.__struct_fields__
    assert [name for name in names if f"`{name}`" not in TABLES] == []
    documented = re.findall(r"\w+", re.sub(r":[^\n]*", "", flags.__doc__ or ""))
    assert [name for name in names if name not in documented] == []
