"""The public surface is what the golden files say; see write_surface.py."""

from __future__ import annotations

import difflib

import pytest

from golden.write_surface import HERE, files

FILES = files()


@pytest.mark.parametrize("name", FILES)
def test_the_public_surface_changes_only_with_its_golden_file(name: str) -> None:
    written = (HERE / name).read_text(encoding="utf-8")
    made = FILES[name]()
    if made != written:
        lines = difflib.unified_diff(written.splitlines(), made.splitlines(), name, "the code", lineterm="", n=1)
        shown = list(lines)[:40]
        pytest.fail("\n".join(["run `make golden` and review the difference:", *shown]), pytrace=False)
