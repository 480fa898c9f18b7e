"""Runs the project's tests."""

from pathlib import Path

from graph_state import graph_state
from project import commands
from verify import verify

directory = Path(graph_state().get("project_dir") or ".")
_, test = commands(directory)
verify("tests", test, directory, good="end_success", seconds=570)
