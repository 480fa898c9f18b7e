"""Which variables of the environment say something here, for `callboard doctor`. No value of a secret is shown."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..actors.io.env_file import env_file, read_dotenv
from ..actors.io.redact import Redactor, without_logins
from ..protocol.environment import PREFIXES, names_of
from ..protocol.errors import ConfigError
from ..protocol.problems import did_you_mean
from ..protocol.settings.keys import WITHOUT_EFFECT
from ..protocol.settings.read import scalars

Found = dict[str, Any]

PLACES = ("config_dir", "config_file", "env_file", *(f"{kind}_dir" for kind in ("roles", "macros", "sessions", "rags")))
"""Where files are."""

OTHERS = {
    **dict.fromkeys((*PLACES, "functions_dir", "log_level", "log_filter", "log_path", "log_file"), ""),
    **dict.fromkeys(("shell", "provider", "platform", "embeddings_retry_limit", "messages_file", "serve_addr"), ""),
}
"""What variables may say that is no key of `config.yaml`; with a reason for what has no effect."""

_OURS_ALONE = ("CALLBOARD_LOG", "CALLBOARD_URL", "CALLBOARD_TTY")
_SECRETS = ("CALLBOARD_TOKEN", "CALLBOARD_CLUSTER", "CALLBOARD_WORKER_KEY")
_ADDRESSES = ("CALLBOARD_WEATHER_URL", "CALLBOARD_WIKIPEDIA_URL", "CALLBOARD_ARXIV_URL", "CALLBOARD_WEB_SEARCH_URL")


def examine_environment(home: Path, environ: Mapping[str, str] = os.environ) -> Found:
    """The user's `.env` file with the names that come from it, and each variable that is ours or Loki's.

    A variable has its `value` (None for one that may hold a secret) and a `note` if it does nothing, or why.
    """
    file = env_file(home, environ)
    try:
        of_file, error = read_dotenv(file), None
    except ConfigError as wrong:
        of_file, error = {}, str(wrong)
    return {
        "file": str(file) if file.exists() else None,
        "error": error,
        "from_file": sorted(name for name, value in of_file.items() if environ.get(name) == value),
        "variables": _variables(environ),
    }


def told(found: Found) -> list[str]:
    """The same for people."""
    lines = []
    if found["error"]:
        lines.append(f"  {found['error']}")
    elif found["file"]:
        names = ", ".join(found["from_file"]) or "nothing that is not set already"
        lines.append(f"  {found['file']}: {names}")
    for name, entry in found["variables"].items():
        value = "set" if entry["value"] is None else entry["value"]
        lines.append(f"  {name} {value}" + (f"  ({entry['note']})" if entry["note"] else ""))
    return lines or ["  none of CALLBOARD_... and LOKI_... is set, and there is no .env"]


def _variables(environ: Mapping[str, str]) -> dict[str, Found]:
    keys = {field.name: WITHOUT_EFFECT.get(field.name, "") for _, field in scalars()} | OTHERS
    known = {name: key for key in keys for name in names_of(key)}
    ours = (*_OURS_ALONE, *_SECRETS, *_ADDRESSES)
    found: dict[str, Found] = {}
    for name in sorted(environ):
        if not name.startswith(PREFIXES) or not environ[name]:
            continue
        key = known.get(name)
        if key is not None:
            first = next(each for each in names_of(key) if environ.get(each))
            note = f"{first} goes before it" if first != name else keys[key] and f"no effect yet: {keys[key]}"
            found[name] = {"value": _shown(environ[name]), "note": note}
        elif name in ours or name.partition("_")[2].startswith("PATCH_"):
            shown = name not in _SECRETS and name in ours
            found[name] = {"value": _shown(environ[name]) if shown else None, "note": ""}
        elif name.startswith("CALLBOARD_"):
            note = did_you_mean(name, known) or "nothing reads it"
            found[name] = {"value": None, "note": note}
    return found


def _shown(value: str) -> str:
    """Without what looks like a secret: a URL may hold a password, or a key."""
    return Redactor().text(without_logins(value))
