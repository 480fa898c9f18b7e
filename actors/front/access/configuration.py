"""Configuration block `api:`: validated before the server listens, and reloaded on SIGHUP."""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec
import trio

from ....protocol.errors import ConfigError, UsageError
from ....protocol.settings.api import ApiSettings
from ....protocol.settings.api_checks import LOOPBACK
from ....supervisors.installation import install_command
from ...io.server_log import set_level
from ...io.settings import load_settings
from .access_control import AccessControl

log = logging.getLogger("callboard.server.access")


def check_may_listen(settings: ApiSettings, host: str) -> bool:
    """Refuse to start a server that would be open to all clients; return True if `host` is loopback only.

    Raises:
        ConfigError: `api.enabled` is false, or a library for checking keys is not installed.
        UsageError: other machines could connect, and no key is set.
    """
    if settings.enabled is False:
        raise ConfigError("`api.enabled` is false in config.yaml; set it to true, or leave it out, to serve")
    auth = settings.auth
    if auth.static or auth.signed:
        try:
            import argon2  # noqa: F401 - to say so before anything is started
            import jwt  # noqa: F401 - to see whether it is there
        except ImportError as error:
            raise ConfigError(f"checking keys needs {error.name}; run: {install_command('server')}") from None
    loopback = host in LOOPBACK
    if not loopback and not auth.static and auth.signed is None:
        raise UsageError(
            f"every client that reaches {host} could run the agents: no key is set. Put one into `api.auth.keys` of "
            "config.yaml (`callboard keys new SUBJECT` prints it), name an issuer in `api.auth.jwt`, "
            "or listen on 127.0.0.1"
        )
    return loopback


async def reload(access: AccessControl, config_dir: Path) -> bool:
    """Reload the settings and apply them as far as possible. Return False, changing nothing, if they are invalid."""
    try:
        settings, _ = await trio.to_thread.run_sync(load_settings, config_dir)
    except ConfigError as error:
        log.error("config.yaml is not taken, everything stays as it was: %s", error)
        access.audit.log("ConfigReload", "error", reason=str(error))
        return False
    before, after = access.settings, settings.api
    changed = sorted(_changed(before, after))
    fixed = access.reload(after)
    set_level(after.log_level)
    log.info("config.yaml was read again; changed: %s", ", ".join(changed) or "nothing")
    if fixed:
        log.warning("changed, but only a restart applies it: %s", ", ".join(fixed))
    access.audit.log("ConfigReload", details={"changed": changed, "needs_restart": fixed})
    return True


def _changed(before: ApiSettings, after: ApiSettings) -> list[str]:
    old, new = (msgspec.to_builtins(settings) for settings in (before, after))
    keys: list[str] = []
    for name, value in new.items():
        if isinstance(value, dict):
            keys += [f"{name}.{inner}" for inner, there in value.items() if old[name].get(inner) != there]
        elif old[name] != value:
            keys.append(name)
    return keys
