"""`callboard usage`: cost of models by day, key, agent and model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .. import options

if TYPE_CHECKING:
    from ...protocol.control.resources import UsageGroup

GROUPS = ("day", "model", "agent", "key")
"""Keys by which sums are grouped; also the names of their columns."""


@click.command("usage", short_help="Show the cost of models, by day, model, agent or key.")
@click.option(
    "--by",
    "groups",
    type=click.Choice(GROUPS),
    multiple=True,
    default=("day", "model"),
    show_default="day, model",
    help="Group the sums by this; repeatable.",
)
@click.option(
    "--days",
    metavar="N",
    type=click.IntRange(1, 36_500),
    default=30,
    show_default=True,
    help="Include the last N days.",
)
@click.option("--url", metavar="URL", help="Ask this server; a gateway includes the usage of its whole cluster.")
@click.option("--token", metavar="TOKEN", envvar="CALLBOARD_TOKEN", help="With --url: token for the server.")
@options.output_and_config
def command(
    groups: tuple[UsageGroup, ...],
    days: int,
    url: str | None,
    token: str | None,
    as_json: bool,
    config_dir: str | None,
) -> str:
    """Show requests, tokens and USD of this user's runs, servers and sessions. Days are UTC days. The key is that of
    the caller who started a run, and `local` for commands of this machine. Runs of Python programs are not included. If
    the settings limit the spending of a day, show how much of the limit is used.
    """
    from ..control.commands.usage import show_usage, usage_at
    from ..control.servers import Where

    # A group that is given twice would be two columns.
    by = tuple(dict.fromkeys(groups))
    if url is not None:
        return usage_at(Where(url=url, token=token), by, days=days, as_json=as_json)
    return show_usage(by, days=days, as_json=as_json, config_dir=config_dir)
