"""Builds or checks the project."""

from pathlib import Path

from graph_state import graph_state
from project import commands
from verify import verify

directory = Path(graph_state().get("project_dir") or ".")
build, _ = commands(directory)
verify("build", build, directory, good="verify_tests", seconds=280)
