"""Where `${NAME}` and `{{NAME}}` of the configuration files are looked up: the environment, until there is a vault."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

from ...protocol.references import Secrets

__all__ = ["EnvironmentSecrets", "Secrets"]


@final
class EnvironmentSecrets:
    """The variables of an environment."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    def get(self, name: str, /) -> str | None:
        """The variable's value; None where it is not set."""
        return self._environ.get(name)
