"""Pytest plugin: collect the root of the repository as a directory, not as a package.

The root has an `__init__.py`, because it is the package `callboard`. pytest would import that file by the name of the
directory, and a clone may be called anything: in `callboard-main`, the name in GitHub's archives, each test failed with
"attempted relative import with no known parent package".
"""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_collect_directory(path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Return a plain directory for the root of the repository; pytest decides about the others."""
    if path != parent.config.rootpath:
        return None
    directory: pytest.Dir = pytest.Dir.from_parent(parent, path=path)
    return directory
