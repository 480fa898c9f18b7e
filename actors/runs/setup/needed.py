"""Test for a missing configuration. It runs at each start of a conversation, so it imports next to nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ....protocol.environment import variable_value
from ...io.directories import config_file

# `provider` is the name of this program, and `platform` that of Loki (LOKI_PLATFORM).
_NAMES_A_MODEL = ("model", "provider", "platform")


def needs_setup(config_dir: Path, environ: Mapping[str, str]) -> bool:
    """Return True if neither a `config.yaml` nor the environment names a model.

    A key in the environment is not a configuration: which of its models to use is worth one question.
    """
    if any(variable_value(key, environ)[0] for key in _NAMES_A_MODEL):
        return False
    return not config_file(config_dir, environ).exists()
