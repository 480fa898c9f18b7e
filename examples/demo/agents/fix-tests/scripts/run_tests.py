"""Run the tests of the working directory and print the result as state."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any


def run_tests() -> dict[str, Any]:
    """Return the numbers of passed and failed tests and the names of the failed ones. No test at all is a failure."""
    # -B: an edit within the second in which bytecode was written would leave that in place.
    argv = [sys.executable, "-B", "-m", "unittest"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    found = re.search(r"^Ran (\d+) test", done.stderr, re.MULTILINE)
    ran = int(found[1]) if found else 0
    names = re.findall(r"^(?:FAIL|ERROR): (\S+)", done.stderr, re.MULTILINE)
    if not names and (done.returncode or not ran):
        names = ["no test could run"]
    failed = f"{len(names)} of {ran} failed: {', '.join(names)}" if names else f"all {ran} passed"
    print(f"python3 -m unittest: {failed}", file=sys.stderr)
    return {"passed": max(0, ran - len(names)), "failed": len(names), "names": ", ".join(names)}


if __name__ == "__main__":
    print(json.dumps(run_tests()))
