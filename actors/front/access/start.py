"""Refuses to start a server that would be open to all clients."""

from __future__ import annotations

from ....protocol.errors import ConfigError, UsageError
from ....protocol.settings.api import ApiSettings
from ....protocol.settings.api_checks import LOOPBACK


def check_may_listen(settings: ApiSettings, host: str) -> bool:
    """Look at the configuration before anything is opened; whether `host` is of this machine only.

    Raises:
        ConfigError: `api.enabled` is false, or what checks keys is not installed.
        UsageError: others would reach us there, and no key is set.
    """
    if settings.enabled is False:
        raise ConfigError("`api.enabled` is false in config.yaml; set it to true, or leave it out, to serve")
    auth = settings.auth
    if auth.static or auth.signed:
        _installed()
    loopback = host in LOOPBACK
    if not loopback and not auth.static and auth.signed is None:
        raise UsageError(
            f"whoever reaches {host} could run the agents: nobody has a key yet. Put one into `api.auth.keys` of "
            "config.yaml (`callboard keys new SUBJECT` prints it), name an issuer in `api.auth.jwt`, "
            "or listen on 127.0.0.1"
        )
    return loopback


def _installed() -> None:
    try:
        import argon2  # noqa: F401 - to say so before anything is started
        import jwt  # noqa: F401 - to see whether it is there
    except ImportError as error:
        raise ConfigError(f"checking keys needs {error.name}: pip install 'callboard[server]'") from None
