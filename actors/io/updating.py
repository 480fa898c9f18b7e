"""Update command for Callboard, depending on its installer. It is printed, not executed."""

from __future__ import annotations

import json
import shlex
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

_NAME = "callboard"


def how_to_update(version: str = "", prefix: str = sys.prefix) -> str:
    """Return the installed version, and the command that installs another one, or the newest.

    Args:
        version: "" for the newest.
        prefix: prefix of the running Python.
    """
    try:
        installed = distribution(_NAME)
    except PackageNotFoundError:
        return "callboard runs from a source directory that is not installed; update that directory (git pull)\n"
    direct = json.loads(installed.read_text("direct_url.json") or "{}")
    if direct.get("dir_info", {}).get("editable"):
        source = str(direct.get("url", "")).removeprefix("file://")
        return (
            f"callboard {installed.version} runs from a source directory; to update it:\n  git -C "
            f"{shlex.quote(source)} pull\n"
        )
    by = (installed.read_text("INSTALLER") or "").strip()
    command = _command(Path(prefix), by, version)
    return f"callboard {installed.version} is installed; to update it:\n  {command}\n"


def _command(prefix: Path, by: str, version: str) -> str:
    exact = f"{_NAME}=={version}" if version else ""
    parts = prefix.parts
    if "uv" in parts and "tools" in parts:
        return f"uv tool install {shlex.quote(exact)}" if exact else f"uv tool upgrade {_NAME}"
    if "pipx" in parts:
        return f"pipx install --force {shlex.quote(exact)}" if exact else f"pipx upgrade {_NAME}"
    python = shlex.quote(sys.executable)
    wanted = shlex.quote(exact or _NAME)
    if by == "uv":
        return f"uv pip install --python {python} --upgrade {wanted}"
    return f"{python} -m pip install --upgrade {wanted}"
