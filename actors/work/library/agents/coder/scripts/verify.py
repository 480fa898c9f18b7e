"""Runs one check of the project and says how it went; what it printed is for the next try to read."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

from graph_state import go

MOST = 20_000
"""Bytes of a log that are kept: its end, where the errors are."""


def verify(name: str, command: str, directory: Path, *, good: str, seconds: float) -> None:
    """Run `command` and go on to `good`, or to the fix loop; writes `{name}_ok`, `_status` and `_output`.

    A project without such a command passes.
    """
    if not command:
        nothing = "nothing to run for this kind of project"
        go(good, **{f"{name}_ok": True, f"{name}_status": nothing, f"{name}_output": nothing})
        return
    # A file, not a pipe: a process that the command leaves behind would keep a pipe open.
    with tempfile.TemporaryFile() as log:
        try:
            status = subprocess.run(
                ["sh", "-c", command],
                cwd=directory,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                timeout=seconds,
            ).returncode
            end = f"[exit {status}]"
        except subprocess.TimeoutExpired:
            status, end = 1, f"[ended after {seconds:g} s, it was still running]"
        size = log.seek(0, os.SEEK_END)
        log.seek(max(0, size - MOST))
        text = log.read().decode(errors="replace").strip()
    if size > MOST:
        text = f"[the first {size - MOST} bytes are left out]\n{text}"
    output = "\n".join(line for line in (f"$ {command}", text, end) if line)
    ok = status == 0
    told = {f"{name}_ok": ok, f"{name}_status": "passed" if ok else "failed", f"{name}_output": output}
    go(good if ok else "fix_loop_gate", **told)


def _environment() -> dict[str, str]:
    """Ours, without the graph's state and without the wish for colours, which only make a log harder to read."""
    mine = ("GRAPH_STATE", "GRAPH_STATE_FILE", "FORCE_COLOR", "CLICOLOR_FORCE")
    return {**{name: value for name, value in os.environ.items() if name not in mine}, "NO_COLOR": "1"}
