"""Runs a script of a graph as the graph does: the state in a variable, one JSON object on stdout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

Json = dict[str, Any]


def played(script: Path, state: Json | None = None, cwd: Path | None = None, **variables: str) -> tuple[int, str, str]:
    """Exit status, stdout and stderr."""
    environment = {**os.environ, "GRAPH_STATE": json.dumps(state or {}), "PYTHONDONTWRITEBYTECODE": "1", **variables}
    done = subprocess.run(
        [sys.executable, str(script)], env=environment, cwd=cwd, capture_output=True, text=True, timeout=60
    )
    return done.returncode, done.stdout, done.stderr


def printed(script: Path, state: Json | None = None, cwd: Path | None = None, **variables: str) -> Json:
    """The object that a script prints when all goes well."""
    status, stdout, stderr = played(script, state, cwd, **variables)
    assert status == 0, stderr
    result = json.loads(stdout)
    assert isinstance(result, dict)
    return result
