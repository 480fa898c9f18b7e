"""`callboard models`: lists with prices, weights of local models, checks, and the price table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..options import complete_model, output_and_config

if TYPE_CHECKING:
    from ...protocol.settings import Settings


@click.group("models", short_help="Models: which there are, what they cost, weights of local ones.")
def models() -> None:
    """Models and their prices, and the weights of local ones. These live in $XDG_CACHE_HOME/callboard/models, else
    ~/.cache/callboard/models.
    """


@models.command("pull", short_help="Fetch the weights of a local model.")
@click.argument("name")
@click.option("-q", "--quiet", is_flag=True, help="No progress on stderr.")
def pull(name: str, quiet: bool) -> str:
    """Fetches the weights NAME (such as smollm2) and checks them; prints the file's path on stdout."""
    from ..actions.models import pull_weights

    return f"{pull_weights(name, quiet=quiet)}\n"


@models.command("list", short_help="List the models that can be used.")
@output_and_config
def list_command(as_json: bool, config_dir: str | None) -> str:
    """Lists the local models that can be pulled or are here, and the models of the clients that can be used: those of
    config.yaml, and those that the environment has a key for.
    """
    from ..actions.models import list_models

    return list_models(_settings(config_dir), as_json=as_json)


@models.command("show", short_help="Show the limits and prices of a model.")
@click.argument("model", metavar="CLIENT:MODEL", shell_complete=complete_model)
@output_and_config
def show(model: str, as_json: bool, config_dir: str | None) -> str:
    """Shows where CLIENT:MODEL is reached, its limits and prices, and where each of them is from. Prices are USD per
    million tokens.
    """
    from ..actions.models import show_model

    return show_model(model, _settings(config_dir), as_json=as_json)


@models.command("check", short_help="See whether models can be used.")
@click.argument("names", metavar="[CLIENT:MODEL]...", nargs=-1, shell_complete=complete_model)
@click.option("--live", is_flag=True, help="Ask each for one word, all of them at once; this costs a few tokens.")
@output_and_config
def check(names: tuple[str, ...], live: bool, as_json: bool, config_dir: str | None) -> int:
    """Says of each CLIENT:MODEL whether it can be used, or why not: where its key or its credentials are from, what it
    costs, what it takes in and what it is not asked for. Without names, of the default and of all that config.yaml
    lists. Nothing is sent without --live.

    Exit code 3 if a key, credentials or settings are missing, 6 if a model can't be reached, 1 if it refuses: that of
    the first that can't be used.
    """
    from ..actions.model_checks import check_models

    return check_models(names, _settings(config_dir), config_dir, live=live, as_json=as_json)


@models.command("update", short_help="Fetch the newest prices of models.")
@click.option(
    "--from",
    "source",
    metavar="FILE|URL",
    default="",
    help="The data_slim.json of genai-prices, or Loki's models.yaml [default: sync_models_url of config.yaml, "
    "or where genai-prices publishes its own].",
)
@output_and_config
def update(source: str, as_json: bool, config_dir: str | None) -> str:
    """Fetches the prices of models, checks them, and keeps them in $XDG_DATA_HOME/callboard/prices.json, by default
    under ~/.local/share. A file that is not as expected changes nothing. Servers that run read it when they are started
    the next time.
    """
    from ..actions.models import update_prices

    return update_prices(source, _settings(config_dir), as_json=as_json)


def _settings(config_dir: str | None) -> Settings:
    import os

    from ...actors.io.directories import config_dir as configured
    from ...actors.io.settings import load_settings

    return load_settings(configured(config_dir, os.environ)[0])[0]
