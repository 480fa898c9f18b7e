"""`callboard cluster`: how a cluster stands."""

from __future__ import annotations

import click

from . import options


@click.command("cluster", short_help="Show the workers and the queue of a cluster.")
@options.cluster
@click.option("--migrate", is_flag=True, help="First makes the tables, or makes them those of this version.")
@options.text_or_json
def command(cluster: str | None, migrate: bool, as_json: bool) -> str:
    """Shows how the cluster in a database stands: its workers, what waits, how often runs were taken over.

    Workers and gateways make the tables by themselves. Where their roles may not, --migrate does it with one that may:
    before the first of them starts, and before each new version.

    \b
      callboard cluster
      callboard cluster --migrate --cluster postgresql://owner@db/callboard
    """
    from .cluster_shown import shown

    return shown(cluster, migrate=migrate, as_json=as_json)
