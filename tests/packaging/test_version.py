"""The version that programs on other machines hear is that of the package."""

from __future__ import annotations

import tomllib
from pathlib import Path

import callboard
from callboard.protocol.version import VERSION


def test_the_version_is_the_one_of_pyproject() -> None:
    text = (Path(callboard.__file__).parent / "pyproject.toml").read_text(encoding="utf-8")
    assert tomllib.loads(text)["project"]["version"] == VERSION
