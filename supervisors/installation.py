"""The command that adds an extra to the installation that runs: pip, uv, pipx, or `uv tool`, from where it came from.

A message that names an extra has to name a command that works. `pip install 'callboard[local]'` does not where
Callboard came from a checkout or a wheel, where pip is missing (uv, pipx), or where another pip is first on the path.
An installation leaves these traces:

    direct_url.json     of the distribution: the checkout (editable or copied), the wheel or the URL; none for an index
    pipx_metadata.json  in the prefix: pipx made it
    uv-receipt.toml     in the prefix: `uv tool` made it
    INSTALLER           of the distribution: pip or uv

pipx and `uv tool` replace an environment as a whole, so their command repeats the extras that are already installed.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from importlib.metadata import Distribution

_NAME = "callboard"
_EXTRA = re.compile(r"""extra\s*==\s*['"]([\w.-]+)['"]""")
_REQUIRED = re.compile(r"[\w.-]+")


def install_command(*extras: str, prefix: Path | None = None, python: str | None = None) -> str:
    """Return the command line that installs these extras into the environment of this process.

    Args:
        extras: names of optional dependencies.
        prefix: the environment's directory; None for that of this process.
        python: its interpreter; None for that of this process.
    """
    prefix, python = prefix or Path(sys.prefix), python or sys.executable
    installed = _installed()
    if (prefix / "pipx_metadata.json").exists():
        return f"pipx install --force {shlex.quote(_source(installed, _all_extras(installed, extras)))}"
    if (prefix / "uv-receipt.toml").exists():
        editable = "--editable " if _is_editable(installed) else ""
        return f"uv tool install --force {editable}{shlex.quote(_source(installed, _all_extras(installed, extras)))}"
    editable = "-e " if _is_editable(installed) else ""
    what = f"{editable}{shlex.quote(_source(installed, extras))}"
    by = "" if installed is None else (installed.read_text("INSTALLER") or "").strip()
    if by == "uv" or find_spec("pip") is None:
        return f"uv pip install --python {shlex.quote(python)} {what}"
    return f"{shlex.quote(python)} -m pip install {what}"


def _installed() -> Distribution | None:
    from importlib.metadata import PackageNotFoundError, distribution  # dear, and seldom needed

    try:
        return distribution(_NAME)
    except PackageNotFoundError:
        return None


def _origin(installed: Distribution | None) -> dict[str, object]:
    try:
        found = json.loads((installed.read_text("direct_url.json") if installed is not None else None) or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _is_editable(installed: Distribution | None) -> bool:
    about = _origin(installed).get("dir_info")
    return isinstance(about, dict) and bool(about.get("editable"))


def _source(installed: Distribution | None, extras: Iterable[str]) -> str:
    """Return the requirement: a directory with extras, `callboard[extras] @ URL`, or `callboard[extras]`."""
    named = f"[{','.join(extras)}]"
    if installed is None:  # run from its source without an installation
        return f"{Path(__file__).parents[1]}{named}"
    origin = _origin(installed)
    url = str(origin.get("url") or "")
    parts = urlsplit(url)
    if parts.scheme == "file":
        path = Path(unquote(parts.path))
        if path.is_dir():
            return f"{path}{named}"
        return f"{_NAME}{named} @ {url}" if path.exists() else f"{_NAME}{named}"
    version_control = origin.get("vcs_info")
    if isinstance(version_control, dict):
        revision = version_control.get("requested_revision") or version_control.get("commit_id") or ""
        return f"{_NAME}{named} @ {version_control.get('vcs', 'git')}+{url}" + (f"@{revision}" if revision else "")
    return f"{_NAME}{named} @ {url}" if url else f"{_NAME}{named}"


def _all_extras(installed: Distribution | None, wanted: Iterable[str]) -> list[str]:
    """Return these extras, and all extras whose packages are installed."""
    if installed is None:
        return list(wanted)
    needed: dict[str, list[str]] = {}
    for line in installed.requires or ():
        found = _EXTRA.search(line)
        name = _REQUIRED.match(line)
        if found and name and name[0] != _NAME:
            needed.setdefault(found[1], []).append(name[0])
    there = [extra for extra, names in needed.items() if all(map(_is_installed, names))]
    return sorted({*wanted, *there})


def _is_installed(name: str) -> bool:
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True
