"""Checks that something was changed, and builds the project."""

from pathlib import Path

import checks
import project
import snapshot
from graph_state import go, graph_state

state = graph_state()
directory = Path(state.get("project_dir") or ".")
before = (state.get("baseline") or {}).get("snapshot")
since = snapshot.Since(before, directory) if before else None
if since is not None and not since:
    log = "No file differs from before. Make the change with your tools; code in your answer goes nowhere."
    go("fix_loop_gate", failure="no file was changed", failure_log=log, build_status="not run", tests_status="not run")
else:
    reports = checks.run(project.builds(directory), directory, 280, of_tests=False)
    failed = [report for report in reports if report["state"] == "failed"]
    unable = [f"could not run: {report['why']}" for report in reports if report["state"] == "unable"]
    status = "failed" if failed else "; ".join(unable) or ("passed" if reports else "nothing to build")
    writes = {
        "build_status": status,
        "build_output": "\n".join(report["log"] for report in reports),
        "files_changed": [] if since is None else [*since.changed, *since.created, *since.deleted],
        "tests_weakened": [] if since is None else since.weakened,
    }
    if failed:
        log = "\n".join(report["log"] for report in failed)
        go("fix_loop_gate", failure="the build fails", failure_log=log, tests_status="not run", **writes)
    else:
        go("verify_tests", **writes)
