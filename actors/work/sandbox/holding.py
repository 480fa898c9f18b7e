"""From what a user says of a kind of process to one that is held: what holds it, its way out, its secrets.

A run's processes share one way out, opened when the first of them needs it. An MCP server, which runs may share, has
one of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import trio

from ....protocol.errors import ProcessError
from ..library import AGENTS
from .backends import Backend, backend, is_known
from .door import Asks, Door, open_door
from .grants import NotAdmitted, Who
from .held import Held
from .hosts import meant, named
from .place import Nature, Place
from .proxy import Client
from .variables import looks_secret, program_in, withheld

if TYPE_CHECKING:
    from ....supervisors import Actor
    from .of_run import Shared

LIBRARY = AGENTS.parent
"""Where the programs are that came with callboard."""


async def hold(me: Actor, place: Place, nature: Nature, shared: Shared, asks: Asks) -> Held | None:
    """How a process of a run is held that `me` is about to start; None if a person has it start without a sandbox.

    Args:
        asks: says which hosts it may reach.

    Raises:
        ProcessError: it would have to be held, and can't be.
    """
    name, ours = nature.name, is_ours(nature.file)
    if isinstance(place.network, tuple) and ours:
        place = msgspec.structs.replace(place, network="on")
    way = await _found_backend()
    if way.kind == "none":
        await _without(me, place, way, name, shared)
        return None
    door = await _door(me, place, way, shared, asks)
    program = await trio.to_thread.run_sync(program_in, nature.file)
    has: Iterable[str] = program.names
    lacks: Mapping[str, str] = {}
    if not ours and place.profile != "open":
        has, lacks = await _secrets(me, place, Who(name, program.sum), program.names, shared)
    return Held(
        place, nature, way, shared.grants, door, temporary=shared.temporary, program=program, given=has, lacks=lacks
    )


async def hold_server(me: Actor, place: Place, name: str, given: Iterable[str], environ: Mapping[str, str]) -> Held:
    """How the process of an MCP server is held that `me` is about to start, and whose way out ends with `me`.

    It may be shared by runs, so nobody is asked about the hosts that it wants to reach: its list says it all.

    Args:
        given: variables that its entry gives to it.

    Raises:
        ProcessError: it can't be held.
    """
    way = await _found_backend()
    if way.kind == "none":
        raise ProcessError(
            f"can't start {name!r}: {_no_way(place, way)}. `sandbox: {{servers: {{{name}: {{profile: off}}}}}}` in "
            f"config.yaml does without"
        )
    door = None
    if _needs_door(place, way):
        assert isinstance(place.network, tuple)
        door = await open_door(me, partial(_listed, place.network), environ, as_root=way.as_root)
    return Held(place, Nature(name=name), way, None, door, given=given)


def is_ours(program: Path | None) -> bool:
    """Whether a program came with callboard: those that go to the web see to it where, and have the keys they name."""
    return program is not None and program.resolve().is_relative_to(LIBRARY.resolve())


async def _found_backend() -> Backend:
    """That of this machine; the first time it is tried out, in a thread."""
    return backend() if is_known() else await trio.to_thread.run_sync(backend)


async def _without(me: Actor, place: Place, way: Backend, name: str, shared: Shared) -> None:
    """There is no way to hold it. Ask whether it may be started all the same.

    Raises:
        ProcessError: it may not.
    """
    why = _no_way(place, way)
    try:
        await shared.grants.once(me, Who(name), "start without a sandbox", f"Start {name} without a sandbox?\n{why}")
    except NotAdmitted as refused:
        raise ProcessError(
            f"can't start {name!r}: {why}. `--sandbox off` (`sandbox: off` in config.yaml) does without ({refused})"
        ) from None


def _no_way(place: Place, way: Backend) -> str:
    why = "; ".join(way.why_not)
    return f"it would have to be held to the sandbox '{place.profile}', and there is no way to: {why}"


def _needs_door(place: Place, way: Backend) -> bool:
    return isinstance(place.network, tuple) and place.profile != "open" and way.kind == "bubblewrap"


async def _door(me: Actor, place: Place, way: Backend, shared: Shared, asks: Asks) -> Door | None:
    """The run's way out, if this kind of process has that; opened when the first one needs it."""
    if not _needs_door(place, way):
        return None
    async with shared.opening:
        if shared.door is None or shared.door.namespace.closed:
            shared.door = await open_door(shared.top or me, asks, shared.environ, as_root=way.as_root)
        return shared.door


async def _secrets(
    me: Actor, place: Place, who: Who, names: frozenset[str], shared: Shared
) -> tuple[Iterable[str], Mapping[str, str]]:
    """The secrets that a program names: those that a person lets it have, and why not the others."""
    has, lacks = [], {}
    asked = {each: text for each, text in shared.environ.items() if each in names and looks_secret(each, text)}
    for variable in sorted(withheld(asked, place.rules.env, names)):
        try:
            text = f"Let {who.name} have {variable}?\nIts file names this variable"
            await shared.grants.once(me, who, f"have {variable}", text)
            has.append(variable)
        except NotAdmitted as refused:
            lacks[variable] = str(refused)
    return has, lacks


async def _listed(hosts: tuple[str, ...], _: Actor, client: Client, host: str, port: int) -> bool:
    if not meant(hosts, host, port):
        raise NotAdmitted(f"it is not in `network` of the server '{client.who.name}' (`sandbox` in config.yaml)")
    return named(hosts, host, port)
