"""Runs on a server or a cluster for `callboard run --on`, displayed as by `callboard attach`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from ...actors.runs.sessions.names import TEMP
from ...protocol.control import method_structs
from ...protocol.control.resources import RunInfo
from ...protocol.errors import UsageError
from .. import logging
from ..control.client import ControlClient, with_client
from ..control.commands.following import attach
from ..control.servers import Where
from ..stdin import prompt_text

if TYPE_CHECKING:
    from ...protocol.requests import RunRequest

_HERE = ("ui", "dry_run", "keep_requests", "record", "replay", "loose")
"""Flags that concern this machine and not the run."""

_EITHER = {"save_session": ("--save-session", "--no-save-session"), "durable": ("--durable", "--ephemeral")}
"""Flags of this machine with a positive and a negative form."""

# `session` and `needs` are sent apart, from the flags; the command line has no title.
_TRAVELS = {name for name in method_structs.StartRun.__struct_fields__ if name not in ("session", "title", "needs")}


def run_on_cluster(request: RunRequest, on: str, needs: Sequence[str], flags: Mapping[str, Any]) -> int:
    """Execute the run on a server; returns its exit code.

    Args:
        on: the URL of a server, or `cluster` for $CALLBOARD_URL, else the newest server of this machine.
        needs: labels that a worker must have.
        flags: of `callboard run`, without those of the request.

    Raises:
        UsageError: a flag is about this machine.
        CallboardError: there is no such server, or the run could not start.
    """
    logging.configure()
    _check_flags(flags)
    request = msgspec.structs.replace(request, prompt=prompt_text(request.prompt, quiet=flags["quiet"]))
    # A server on this machine works in another directory. The name of an agent stays a name.
    if isinstance(request.target, str) and os.path.exists(request.target):  # noqa: PTH110 - no event loop runs yet
        request = msgspec.structs.replace(request, target=os.path.abspath(request.target))  # noqa: PTH100 - the same
    given = {name: getattr(request, name) for name in _TRAVELS if hasattr(request, name)}
    given |= {name: getattr(request.limits, name) for name in request.limits.__struct_fields__}
    _check(request, set(given))
    # 0 is left out too, since it equals False; limits are above 0 (`options.above_zero`).
    params = {name: value for name, value in given.items() if value not in (None, "", (), {}, [], False)}
    if flags.get("session") is not None:
        params["session"] = "" if flags["session"] == TEMP else flags["session"]
    where = Where(url=None if on == "cluster" else on, token=None)
    if on == "cluster" and os.environ.get("CALLBOARD_URL"):
        where = Where(url=os.environ["CALLBOARD_URL"], token=None)

    async def start(client: ControlClient) -> RunInfo:
        return (await client.ask("_run/start", method_structs.OneRun, **params, needs=list(needs))).run

    info = with_client(where, start)
    return attach(
        run=info.run,
        no_input=flags["no_input"],
        output=flags["output"],
        quiet=flags["quiet"],
        verbose=flags["verbose"],
        url=where.url,
        token=None,
    )


def _check_flags(flags: Mapping[str, Any]) -> None:
    given = [f"--{name.replace('_', '-')}" for name in _HERE if flags.get(name)]
    given += [yes if flags[name] else no for name, (yes, no) in _EITHER.items() if flags.get(name) is not None]
    if given:
        raise UsageError(f"{given[0]} is for files of this machine, and --on executes the run on another one")


def _check(request: RunRequest, travels: set[str]) -> None:
    """Raise `UsageError` for request fields that can't be sent to a server."""
    for field in msgspec.structs.fields(type(request)):
        if field.name in travels or field.name in ("limits", "id", "target"):
            continue
        usual = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
        if getattr(request, field.name) != usual:
            flag = field.name.replace("_", "-")
            raise UsageError(f"--{flag} can't be sent to a server: leave it out, or set it in the agent's file")
