"""`callboard usage`: cost of models by day, key, agent and model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .. import options

if TYPE_CHECKING:
    from ...protocol.control.things import UsageGroup

GROUPS = ("day", "model", "agent", "key")
"""Keys by which sums are grouped; also the names of their columns."""


@click.command("usage", short_help="Show what models have cost, by day, model, agent or key.")
@click.option(
    "--by",
    "groups",
    type=click.Choice(GROUPS),
    multiple=True,
    default=("day", "model"),
    show_default="day, model",
    help="A row for each; may be given several times.",
)
@click.option(
    "--days", metavar="N", type=click.IntRange(1, 36_500), default=30, show_default=True, help="Of the last N days."
)
@click.option("--url", metavar="URL", help="Asks this server: of a gateway, what all of its cluster has spent.")
@click.option("--token", metavar="TOKEN", envvar="CALLBOARD_TOKEN", help="With --url: what to show it.")
@options.output_and_config
def command(
    groups: tuple[UsageGroup, ...],
    days: int,
    url: str | None,
    token: str | None,
    as_json: bool,
    config_dir: str | None,
) -> str:
    """Shows requests, tokens and USD of this user's runs, servers and sessions. Days are those of UTC; a key is whose a
    run is, `local` for those of this machine's own commands. What Python programs have run by themselves is not in it.
    Where the settings of a server limit what may be spent in a day, it says how much of that was.
    """
    from ..control.commands.usage import show_usage, usage_at
    from ..control.servers import Where

    by = tuple(dict.fromkeys(groups))
    if url is not None:
        return usage_at(Where(url=url, token=token), by, days=days, as_json=as_json)
    return show_usage(by, days=days, as_json=as_json, config_dir=config_dir)
