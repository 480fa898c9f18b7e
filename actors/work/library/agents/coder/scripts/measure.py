"""Runs the tests before anything is changed, so that tests which are missing afterwards are noticed."""

from pathlib import Path

import checks
import project
import snapshot
from graph_state import go, graph_state

directory = Path(graph_state().get("project_dir") or ".")
reports = checks.run(project.tests(directory), directory, 570, of_tests=True)
suites = [{key: value for key, value in report.items() if key != "log"} for report in reports]
# After the tests: what they leave in the project is no change of the agent.
go("implement", baseline={"suites": suites, "snapshot": snapshot.take(directory)})
