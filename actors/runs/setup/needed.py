"""Whether there is no configuration at all. Asked at each start of a conversation, so it imports next to nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ....protocol.environment import said
from ...io.directories import config_file

_NAMES_A_MODEL = ("model", "provider", "platform")


def needs_setup(config_dir: Path, environ: Mapping[str, str]) -> bool:
    """Whether neither a `config.yaml` nor the environment says which model is to be used.

    A key in the environment alone is no configuration: which model it is good for is worth one question.
    """
    if any(said(key, environ)[0] for key in _NAMES_A_MODEL):
        return False
    return not config_file(config_dir, environ).exists()
