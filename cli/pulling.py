"""What `callboard models` does: fetches weights under a root of its own, and lists them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import trio

from ..actors.work.models import weights
from ..protocol.errors import CallboardError
from ..supervisors import Root
from .render.text import json_object, redrawable

if TYPE_CHECKING:
    from ..protocol.settings import Settings

_MEGABYTE = 1_000_000


def pull_weights(name: str, *, quiet: bool) -> Path:
    """Fetches the weights and returns their path.

    Raises:
        CallboardError: as `weights.pull`.
        click.exceptions.Exit: a signal interrupted it; the code is 128 and the signal's number.
    """
    return trio.run(_pull, name, (lambda *_: None) if quiet else _teller())


def list_models(settings: Settings, *, as_json: bool) -> str:
    """The local models that can be pulled, the files that are here, and the models of clients; a table or JSON."""
    here = {entry.model: entry for entry in weights.installed(os.environ)}
    rows = [
        {
            "model": known.id,
            "name": known.name,
            "title": known.title,
            "size": known.size,
            "path": here[known.id].path if known.id in here else None,
        }
        for known in weights.KNOWN.values()
    ]
    named = {row["model"] for row in rows}
    rows += [
        {"model": entry.model, "name": None, "title": "", "size": entry.size, "path": entry.path}
        for model, entry in here.items()
        if model not in named
    ]
    from .model_clients import usable

    clients = usable(settings)
    if as_json:
        return json_object(models=rows, clients=clients)
    lines = [f"  {_client(client)}\n" for client in clients]
    return "".join([*map(_row, rows), *(["\nmodels of clients\n", *lines] if lines else [])])


def _client(client: Mapping[str, Any]) -> str:
    key = {None: "", True: " (key set)", False: " (no key)"}[client["key"]]
    key = {None: key, True: " (signed in)", False: " (not signed in)"}[client["signed_in"]]
    from .model_prices import in_words

    listed = (f"{each['id']} ({in_words(each)})" for each in client["models"])
    models = ", ".join(listed) or f"{client['client']}:<any name>"
    return f"{client['client']}{key}: {models}"


def _row(row: Mapping[str, Any]) -> str:
    where = row["path"] or f"not here (callboard models pull {row['name']})"
    return f"{row['model']:<16} {row['size'] // _MEGABYTE:>5} MB  {row['title']}\n    {where}\n"


async def _pull(name: str, tell: Callable[[str, int, int], None]) -> Path:
    async with Root(signals=True) as root:
        ref = root.spawn(lambda me: weights.pull(me, name, os.environ, tell), name="pull", link=False)
        end = await ref.wait()
    if isinstance(end.error, CallboardError):
        raise end.error
    if end.reason != "normal" and end.error is None and root.signal is not None:
        sys.stderr.write("\ncallboard: stopped before the weights were here\n")
        raise click.exceptions.Exit(128 + root.signal)
    return await ref.result()


def _teller() -> Callable[[str, int, int], None]:
    live = redrawable(sys.stderr)
    last = ("", -1)

    def tell(what: str, done: int, total: int) -> None:
        nonlocal last
        percent = done * 100 // total if total else 0
        step = (what, percent if live else percent // 50)
        if step == last or what == "checked":
            return
        last = step
        text = f"{what} {percent}% of {total // _MEGABYTE} MB" if total else what
        sys.stderr.write(f"\r\x1b[K{text}" if live else f"{text}\n")
        if live and total and done >= total:
            sys.stderr.write("\n")
        sys.stderr.flush()

    return tell
