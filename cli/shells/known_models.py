"""Model names for completion, cached between keys.

To find them, config.yaml is read and validated, and the price table is searched: a third of a second per Tab. So they
are cached with a fingerprint of their sources: the two files, and which key variables of clients are set in the
environment. Keys themselves are not read.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...actors.io.directories import cache_dir, config_file, data_dir, private_directory
from ...actors.io.environment import env_file

_OF_KEYS = ("API_KEY", "TOKEN", "CREDENTIALS", "PROFILE", "HOST", "BASE_URL", "ACCESS_KEY_ID", "PROJECT_ID")


def known_models(home: Path, environ: Mapping[str, str]) -> list[str]:
    """Return the models of a configuration directory; none if its config.yaml can't be read."""
    stamp = _stamp(home, environ)
    file = cache_dir(environ) / "completion" / f"models-{hashlib.sha256(os.fsencode(home)).hexdigest()[:16]}.json"
    kept = _read_cache(file)
    if kept.get("stamp") == stamp and isinstance(kept.get("models"), list):
        return [str(name) for name in kept["models"]]
    models = _found(home)
    if models is None:
        return []
    with suppress(OSError):  # without a cache it is only slow
        from ...actors.io.atomic_write import write_whole

        private_directory(file.parent)
        write_whole(file, json.dumps({"stamp": stamp, "models": models}).encode(), private=True)
    return models


def _found(home: Path) -> list[str] | None:
    from ...actors.io.settings import load_settings
    from ...actors.work.models.model_listing import model_names
    from ...protocol.errors import ConfigError

    try:
        settings, _ = load_settings(home)
    except ConfigError:
        return None  # the command itself reports the error
    return sorted(model_names(settings, os.environ))


def _read_cache(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _stamp(home: Path, environ: Mapping[str, str]) -> list[object]:
    """Return the fingerprint of the sources of the names, as JSON values."""
    files = (config_file(home, environ), env_file(home, environ), data_dir(environ) / "prices.json", Path(__file__))
    names = sorted(name for name, value in environ.items() if value and name.endswith(_OF_KEYS))
    models = {name: environ[name] for name in ("CALLBOARD_MODEL", "LOKI_MODEL") if name in environ}
    return [[_changed(file) for file in files], names, models]


def _changed(file: Path) -> list[int]:
    try:
        found = file.stat()
    except OSError:
        return []
    return [found.st_mtime_ns, found.st_size]
