"""Turns the agent variable project_dir into an absolute path, relative to where the run was started."""

import os
import sys
from pathlib import Path

from graph_state import go

wanted = os.environ.get("LLM_AGENT_VAR_PROJECT_DIR") or "."
directory = Path(wanted).expanduser().resolve()
if not directory.is_dir():
    sys.exit(f"project_dir '{wanted}' is not a directory ({directory})")
go("analyze_request", project_dir=str(directory))
