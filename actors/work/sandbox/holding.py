"""Preparation of a `HeldProcess`: backend, egress, and the secrets that the user grants.

The processes of a run share one egress, opened when the first of them needs it. An MCP server has an egress of its own,
because several runs may share the server.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import trio

from ....protocol.errors import ProcessError
from ..library import AGENTS
from .backends import Backend, backend, is_known
from .egress import Asks, Egress, open_egress
from .grants import HAVE, NotAdmitted, Who
from .held import HeldProcess
from .hosts import matches_host, named
from .place import Nature, SandboxPlace
from .proxy import ProxyClient
from .variables import NO_PROGRAM, looks_secret, program_in, withheld

if TYPE_CHECKING:
    from ....supervisors import Actor
    from .of_run import Shared

LIBRARY = AGENTS.parent
"""Directory of the programs that come with Callboard."""


async def hold(me: Actor, place: SandboxPlace, nature: Nature, shared: Shared, asks: Asks) -> HeldProcess | None:
    """Return the confinement for a process of a run that `me` is about to start; None if the user allows none.

    Args:
        asks: decides which hosts the process may reach.

    Raises:
        ProcessError: the process needs a sandbox, and none works.
    """
    name, ours = nature.name, is_ours(nature.file)
    # These programs check addresses themselves, so they need no list.
    if isinstance(place.network, tuple) and ours:
        place = msgspec.structs.replace(place, network="on")
    way = await _found_backend()
    if way.kind == "none":
        await _without(me, place, way, name, shared)
        return None
    door = await _egress(me, place, way, shared, asks)
    program = NO_PROGRAM if nature.file is None else await trio.to_thread.run_sync(program_in, nature.file)
    has: Iterable[str] = program.names
    lacks: Mapping[str, str] = {}
    if not ours and place.profile != "open":
        has, lacks = await _secrets(me, place, Who(name, program.sum), program.names, shared)
    return HeldProcess(
        place, nature, way, shared.grants, door, temporary=shared.temporary, program=program, given=has, lacks=lacks
    )


async def hold_server(
    me: Actor,
    place: SandboxPlace,
    name: str,
    given: Iterable[str],
    environ: Mapping[str, str],
    *,
    writes: Sequence[Path] = (),
    shows: Sequence[str] = (),
) -> HeldProcess:
    """Return the confinement for an MCP server's process that `me` is about to start. Its egress ends with `me`.

    Runs may share the server, so no question is asked about hosts: its list is complete.

    Args:
        given: variables that its entry sets.
        writes, shows: see `Nature`.

    Raises:
        ProcessError: no sandbox works.
    """
    way = await _found_backend()
    if way.kind == "none":
        raise ProcessError(
            f"can't start {name!r}: {_no_way(place, way)}. `sandbox: {{servers: {{{name}: {{profile: off}}}}}}` in "
            f"config.yaml does without"
        )
    door = None
    if _needs_egress(place, way):
        assert isinstance(place.network, tuple)
        door = await open_egress(me, partial(_listed, place.network), environ, as_root=way.as_root)
    return HeldProcess(place, Nature(name=name, writes=writes, shows=shows), way, None, door, given=given)


def is_ours(program: Path | None) -> bool:
    """Return True if a program comes with Callboard. Such programs check addresses themselves and receive the keys they
    name."""
    return program is not None and program.resolve().is_relative_to(LIBRARY.resolve())


async def _found_backend() -> Backend:
    """Return the backend of this machine. The first call tries it in a thread."""
    return backend() if is_known() else await trio.to_thread.run_sync(backend)


async def _without(me: Actor, place: SandboxPlace, way: Backend, name: str, shared: Shared) -> None:
    """Ask whether the process may start without a sandbox, since no backend works.

    Raises:
        ProcessError: the user refuses, or can't be asked.
    """
    why = _no_way(place, way)
    try:
        await shared.grants.once(me, Who(name), "start without a sandbox", f"Start {name} without a sandbox?\n{why}")
    except NotAdmitted as refused:
        raise ProcessError(
            f"can't start {name!r}: {why}. `--sandbox off` (`sandbox: off` in config.yaml) does without ({refused})"
        ) from None


def _no_way(place: SandboxPlace, way: Backend) -> str:
    why = "; ".join(way.why_not)
    return f"it would have to be held to the sandbox '{place.profile}', and there is no way to: {why}"


def _needs_egress(place: SandboxPlace, way: Backend) -> bool:
    return isinstance(place.network, tuple) and place.profile != "open" and way.kind == "bubblewrap"


async def _egress(me: Actor, place: SandboxPlace, way: Backend, shared: Shared, asks: Asks) -> Egress | None:
    """Return the run's egress if this kind of process uses it. The first call opens it."""
    if not _needs_egress(place, way):
        return None
    async with shared.opening:
        # The egress is closed if the actor that it lives under has ended; the next process opens another.
        if shared.door is None or shared.door.namespace.closed:
            shared.door = await open_egress(shared.top or me, asks, shared.environ, as_root=way.as_root)
        return shared.door


async def _secrets(
    me: Actor, place: SandboxPlace, who: Who, names: frozenset[str], shared: Shared
) -> tuple[Iterable[str], Mapping[str, str]]:
    """Return the secrets that a program names and the user grants, and the reasons for withholding the others."""
    has, lacks = [], {}
    asked = {each: text for each, text in shared.environ.items() if each in names and looks_secret(each, text)}
    for variable in sorted(withheld(asked, place.rules.env, names)):
        try:
            text = f"Let {who.name} have {variable}?\nIts file names this variable"
            await shared.grants.once(me, who, HAVE + variable, text)
            has.append(variable)
        except NotAdmitted as refused:
            lacks[variable] = str(refused)
    return has, lacks


async def _listed(hosts: tuple[str, ...], _: Actor, client: ProxyClient, host: str, port: int) -> bool:
    if not matches_host(hosts, host, port):
        raise NotAdmitted(f"it is not in `network` of the server '{client.who.name}' (`sandbox` in config.yaml)")
    return named(hosts, host, port)
