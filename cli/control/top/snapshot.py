"""`callboard top` where there is no terminal: what is there now, once."""

from __future__ import annotations

import msgspec

from ....protocol.control import own
from ...render.text import json_object, table
from ..client import Client, find_run, with_client
from ..servers import Where
from .table import full


def snapshot(where: Where, run: str | None, *, as_json: bool) -> str:
    """The text for stdout."""

    async def ask(client: Client) -> tuple[str, own.Actors]:
        of = None if run is None else (await find_run(client, run)).run
        return client.server.url, await client.ask("_actor/tree", own.Actors, run=of)

    url, tree = with_client(where, ask)
    if as_json:
        shown = [msgspec.to_builtins(actor) for actor in tree.actors]
        return json_object(server=url, memory=tree.memory, actors=shown)
    return table(full(tree.actors)) if tree.actors else "no actor is at work\n"
