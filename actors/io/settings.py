"""Loading of the settings in a configuration directory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from ...protocol.environment import variable_value
from ...protocol.errors import ConfigError
from ...protocol.problems import Problem, errors_in
from ...protocol.settings import Settings, read_settings
from .directories import config_file


def load_settings(config_dir: Path) -> tuple[Settings, list[Problem]]:
    """Return the settings in `config.yaml` (which may be missing) with the environment's overrides, and their problems.

    Raises:
        ConfigError: it can't be read, or has errors; the text lists all of them.
    """
    file = config_file(config_dir)
    if file.exists() and not file.is_file():
        raise ConfigError(f"{file} can't be read: it is not a regular file")
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        text = ""
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "the file is not UTF-8 text"
        raise ConfigError(f"{file} can't be read: {reason}") from error
    settings, problems = read_settings(text, str(file), os.environ)
    if not text and not settings.model:
        settings = _of_provider(settings, os.environ)
    errors = errors_in(problems)
    if errors:
        where = file if any(error.file == str(file) for error in errors) else "the environment"
        count = f"{len(errors)} error{'' if len(errors) == 1 else 's'}"
        raise ConfigError("\n".join([f"{where} has {count}:", *(f"  {error}" for error in errors)]))
    return settings, problems


def _of_provider(settings: Settings, environ: Mapping[str, str]) -> Settings:
    """Apply `CALLBOARD_PROVIDER` (or the older `_PLATFORM`) if there is no file."""
    for key in ("provider", "platform"):
        variable, named = variable_value(key, environ)
        if variable:
            return msgspec.structs.replace(settings, model=named, model_from=variable)
    return settings
