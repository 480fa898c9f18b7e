"""Implementation of `callboard ps`: a server's runs with their current activities."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from ....actors.front.control.liveness import read_present
from ....protocol.control import method_structs
from ....protocol.control.caller import LOCAL
from ....protocol.control.resources import ActorInfo, RunInfo
from ....protocol.errors import NoServer
from ....protocol.relative_time import age, seconds_since
from ...render.text import json_object, one_line, table
from ..client import ControlClient, runs_of, with_client
from ..figures import cells
from ..servers import Where

_HEAD = ("RUN", "STATUS", "TARGET", "SINCE", "ASKS", "TOKENS", "COST", "DOING")
_LIVE = ("queued", "running", "waiting")


def list_runs(where: Where, *, past: bool, limit: int, as_json: bool) -> str:
    """Return the text for stdout: the server's runs, and runs of other processes of this user, which can only be
    listed.

    Raises:
        NoServer: there is neither a server nor such a run.
    """
    here = [] if where.url is not None else read_present(os.environ)

    async def ask(client: ControlClient) -> tuple[str, list[RunInfo], list[ActorInfo]]:
        if past:
            runs = await runs_of(client, most=limit)
        else:
            runs = [run for status in _LIVE for run in await runs_of(client, status=status)]
            runs.sort(key=lambda run: run.started, reverse=True)
        live = any(not run.over for run in runs)
        actors = (await client.ask("_actor/tree", method_structs.Actors)).actors if live else []
        return client.server.url, runs, actors

    url: str | None
    try:
        url, runs, actors = with_client(where, ask)
    except NoServer:
        if not here:
            raise
        url, runs, actors = None, [], []
    doing = now_doing(actors)
    known = {run.run for run in runs}
    others = {other.run for other in here}  # a server also knows the stored ones
    runs.sort(key=lambda run: run.run in others)
    for other in here:
        doing.setdefault(other.run, f"in process {other.pid}")
        if other.run not in known:
            info = RunInfo(run=other.run, target=other.target, name=other.name, started=other.started)
            runs.append(msgspec.structs.replace(info, owner=LOCAL.subject))
    if as_json:
        shown = [{**msgspec.to_builtins(run), "doing": doing.get(run.run, "")} for run in runs]
        return json_object(server=url, runs=shown)
    if not runs:
        return "no run yet\n" if past else "no run is under way (past ones: callboard ps -a)\n"
    return table([_HEAD, *(_row(run, doing.get(run.run, "")) for run in runs)])


def now_doing(actors: Iterable[ActorInfo]) -> dict[str, str]:
    """Return by run id the newest activity of its actors, with its age and the number of further active actors."""
    busy: dict[str, list[ActorInfo]] = defaultdict(list)
    for actor in actors:
        if actor.doing and actor.kind != "run":
            busy[actor.run].append(actor)
    told = {}
    for run, at_work in busy.items():
        newest = max(at_work, key=lambda actor: actor.doing_since)
        more = f" (+{len(at_work) - 1})" if len(at_work) > 1 else ""
        told[run] = f"{one_line(newest.doing, 40)} {age(seconds_since(newest.doing_since))}".rstrip() + more
    return told


def _row(run: RunInfo, doing: str) -> Sequence[str]:
    last = one_line(run.error.message, 80) if run.error else doing
    return cells(run, (age(seconds_since(run.started)), str(run.open_questions or "")), last)
