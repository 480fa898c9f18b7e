"""`callboard models`: lists with prices, weights of local models, checks, and the price table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..options import complete_model, output_and_config

if TYPE_CHECKING:
    from ...protocol.settings import Settings


@click.group("models", short_help="List and check models, and fetch local weights.")
def models() -> None:
    """List models and their prices, check models, and fetch the weights of local ones. Weights are stored in
    $XDG_CACHE_HOME/callboard/models, else ~/.cache/callboard/models.
    """


@models.command("pull", short_help="Fetch the weights of a local model.")
@click.argument("name")
@click.option("-q", "--quiet", is_flag=True, help="Print no progress on stderr.")
def pull(name: str, quiet: bool) -> str:
    """Fetch and verify the weights NAME (such as smollm2), and print the path of the file on stdout."""
    from ..actions.models import pull_weights

    return f"{pull_weights(name, quiet=quiet)}\n"


@models.command("list", short_help="List the usable models.")
@output_and_config
def list_command(as_json: bool, config_dir: str | None) -> str:
    """List the local models, installed or available to pull, and the models of the usable clients: those of
    config.yaml, and those with a key in the environment.
    """
    from ..actions.models import list_models

    return list_models(_settings(config_dir), as_json=as_json)


@models.command("show", short_help="Show the limits and prices of a model.")
@click.argument("model", metavar="CLIENT:MODEL", shell_complete=complete_model)
@output_and_config
def show(model: str, as_json: bool, config_dir: str | None) -> str:
    """Show the address of CLIENT:MODEL, its limits and prices, and the source of each. Prices are USD per million
    tokens.
    """
    from ..actions.models import show_model

    return show_model(model, _settings(config_dir), as_json=as_json)


@models.command("check", short_help="Check whether models can be used.")
@click.argument("names", metavar="[CLIENT:MODEL]...", nargs=-1, shell_complete=complete_model)
@click.option(
    "--live", is_flag=True, help="Send each model a prompt of one word, all at once; this costs a few tokens."
)
@output_and_config
def check(names: tuple[str, ...], live: bool, as_json: bool, config_dir: str | None) -> int:
    """Print whether each CLIENT:MODEL can be used, or why not: the source of its key or credentials, its price, its
    inputs, and the parameters that it does not support. Without names, check the default model and all models of
    config.yaml. Nothing is sent without --live.

    Exit code, that of the first unusable model: 3 if a key, credentials or settings are missing, 6 if it can't be
    reached, 1 if it refuses.
    """
    from ..actions.models import check_models

    return check_models(names, _settings(config_dir), config_dir, live=live, as_json=as_json)


@models.command("update", short_help="Fetch the newest prices of models.")
@click.option(
    "--from",
    "source",
    metavar="FILE|URL",
    default="",
    help="The data_slim.json of genai-prices, or Loki's models.yaml [default: sync_models_url of "
    "config.yaml, else the file that genai-prices publishes].",
)
@output_and_config
def update(source: str, as_json: bool, config_dir: str | None) -> str:
    """Fetch and verify the prices of models, and store them in $XDG_DATA_HOME/callboard/prices.json, by default under
    ~/.local/share. An invalid file changes nothing. Running servers read the prices at their next start.
    """
    from ..actions.models import update_prices

    return update_prices(source, _settings(config_dir), as_json=as_json)


def _settings(config_dir: str | None) -> Settings:
    import os

    from ...actors.io.directories import config_dir as configured
    from ...actors.io.settings import load_settings

    return load_settings(configured(config_dir, os.environ)[0])[0]
