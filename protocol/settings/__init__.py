"""Settings: the structs and the reader of `config.yaml` in the configuration directory.

`model` has the structs, and a module for each large block (`api`, `vault`, `patches`); `read` fills them. The package
imports other modules of `protocol/` and nothing above it. Names to know: `Settings`, `read_settings`. Start with
`model`.
"""

from .api import ApiSettings
from .model import CLIENT_TYPES, ClientSettings, Extra, ModelSettings, Settings
from .read import WITHOUT_EFFECT, json_schema, read_settings, without_effect
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
