"""SIGHUP: read `config.yaml` again and go by it, as far as that is possible; if it is wrong, go on as before."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import trio

from ....protocol.errors import ConfigError
from ....protocol.settings.api import ApiSettings
from ...io.server_log import set_level
from ...io.settings import load_settings

if TYPE_CHECKING:
    from .gate import Gate

log = logging.getLogger("callboard.server.access")


async def reload(gate: Gate, config_dir: Path) -> bool:
    """Read the settings again; whether they were taken."""
    try:
        settings, _ = await trio.to_thread.run_sync(load_settings, config_dir)
    except ConfigError as error:
        log.error("config.yaml is not taken, everything stays as it was: %s", error)
        if gate.audit is not None:
            gate.audit.log("ConfigReload", "error", reason=str(error))
        return False
    before, after = gate.settings, settings.api
    changed = sorted(_changed(before, after))
    fixed = gate.reload(after)
    set_level(after.log_level)
    log.info("config.yaml was read again; changed: %s", ", ".join(changed) or "nothing")
    if fixed:
        log.warning("changed, and needs a restart to count: %s", ", ".join(fixed))
    if gate.audit is not None:
        gate.audit.log("ConfigReload", details={"changed": changed, "needs_restart": fixed})
    return True


def _changed(before: ApiSettings, after: ApiSettings) -> list[str]:
    """Which keys are not as they were: their names, never their values."""
    old, new = (msgspec.to_builtins(settings) for settings in (before, after))
    keys: list[str] = []
    for name, value in new.items():
        if isinstance(value, dict):
            keys += [f"{name}.{inner}" for inner, there in value.items() if old[name].get(inner) != there]
        elif old[name] != value:
            keys.append(name)
    return keys
