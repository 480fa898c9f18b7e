"""Settings, `config.yaml` of the configuration directory: `model` defines its contents, `read` reads it."""

from .api import ApiSettings
from .keys import WITHOUT_EFFECT, without_effect
from .model import CLIENT_TYPES, ClientSettings, Extra, ModelSettings, Settings
from .read import json_schema, read_settings
from .vault import VaultSettings

__all__ = [
    "CLIENT_TYPES",
    "WITHOUT_EFFECT",
    "ApiSettings",
    "ClientSettings",
    "Extra",
    "ModelSettings",
    "Settings",
    "VaultSettings",
    "json_schema",
    "read_settings",
    "without_effect",
]
