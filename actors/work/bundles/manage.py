"""Installs, updates, removes and lists bundles. No terminal is needed: the caller brings a `Person`.

    person = Person(tell=print, ask=confirm)
    done = await install(me, base, "https://example.org/team/agents.git#v2", Wishes(), person, environ, here=here)
    print(*done.lines, sep="\n")

The order is always the same: fetch, lock the directory, finish what a killed install has left, plan, tell, ask, look
again whether all is as it was when the person was told, and carry out.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import trio

from ....protocol.environment import said
from ....protocol.errors import NotFound, UsageError
from ....protocol.problems import did_you_mean
from ...io.directories import Kind as DirectoryKind
from ...io.directories import user_folder
from .carry_out import NewFile, alone, finish
from .offer import LIBRARY, Offer, offer_of
from .plan import Plan, fates
from .preview import shown_bundle
from .record import NAME, Bundle, Record, read_record, written
from .settle import Done, Person, Wishes, carried_out, settle
from .source import BUILT_IN, Source, read_source
from .state import State, mcp_put

if TYPE_CHECKING:
    from ....supervisors import Actor

OURS = "builtin"
"""What the bundle of all that comes with Callboard is called."""


async def install(
    me: Actor, base: Path, text: str, wishes: Wishes, person: Person, environ: Mapping[str, str], *, here: Path
) -> Done:
    """Install what a URL or a directory holds into the configuration directory `base`.

    Args:
        text: see `source.read_source`; `BUILT_IN` for what comes with Callboard.
        here: where a relative path is seen from.

    Raises:
        CallboardError: it can't be had, is refused, or is in the way of something.
    """
    source = _ours() if text == BUILT_IN else read_source(text, here)
    offer = await offer_of(me, source, environ, base=base, path=wishes.path, filters=wishes.filters)
    _tell_elsewhere(offer, base, environ, person)
    with alone(base):
        record = _begin(base, person)
        name = _name_for(source, wishes.path, record)
        old = record.bundles.get(name)
        filters = () if old is not None and not old.filter else wishes.filters
        if old is not None and wishes.filters:
            filters = tuple(dict.fromkeys([*old.filter, *wishes.filters])) if old.filter else ()
        new = Bundle(url=source.url, ref=source.ref, path=wishes.path, commit=offer.commit, filter=filters)
        partly = old is not None and bool(wishes.filters)
        return await settle(base, name, record, new, offer, wishes, person, partly=partly)


async def update(me: Actor, base: Path, name: str, wishes: Wishes, person: Person, environ: Mapping[str, str]) -> Done:
    """Fetch an installed bundle again, and install what has changed in it.

    Raises:
        NotFound: there is none of this name.
        CallboardError: as `install`.
    """
    old = _known(read_record(base), name)
    source = _source_of(old)
    offer = await offer_of(me, source, environ, base=base, path=old.path, filters=old.filter, strict=False)
    _tell_elsewhere(offer, base, environ, person)
    with alone(base):
        record = _begin(base, person)
        old = _known(record, name)
        new = msgspec.structs.replace(old, commit=offer.commit, files={}, servers={})
        return await settle(base, name, record, new, offer, wishes, person)


async def remove(base: Path, name: str, wishes: Wishes, person: Person) -> Done:
    """Remove what a bundle has installed. What the user has changed since stays, unless force is used.

    Raises:
        NotFound: there is none of this name.
    """
    with alone(base):
        record = _begin(base, person)
        bundle = _known(record, name)
        state = await trio.to_thread.run_sync(State.of, base, bundle.files)
        plan = Plan(files=fates(state.files, bundle.files, {}), servers=fates(state.server_hashes, bundle.servers, {}))
        plan = plan.forced() if wishes.force else plan
        files = [path for path, fate in plan.files.items() if fate == "gone"]
        servers = [server for server, fate in plan.servers.items() if fate == "gone"]
        kept = [path for path, fate in plan.files.items() if fate == "left"]
        kept += [f"MCP server {server}" for server, fate in plan.servers.items() if fate == "left"]
        lines = [f"removes {path}" for path in files] + [f"removes MCP server {server}" for server in servers]
        lines += [f"keeps {path}, which you have changed" for path in kept]
        person.tell("\n".join([f"Bundle {shown_bundle(name, bundle)}", *(f"  {line}" for line in lines)]))
        if not wishes.yes and not await person.ask(f"Remove {name}?"):
            return Done(name=name, refused=True, lines=("nothing was removed",))
        puts = mcp_put(state, {}, servers)
        puts[NAME] = NewFile(written(record.with_bundle(name, None)))
        await trio.to_thread.run_sync(carried_out, base, state, puts, files)
    told = [f"removed {name}: {len(files)} files" + (f", {len(servers)} MCP servers" if servers else "")]
    return Done(name=name, changed=True, lines=(*told, *(f"kept, since you have changed it: {path}" for path in kept)))


def installed(base: Path) -> dict[str, tuple[Bundle, list[str]]]:
    """All bundles by name, each with what the user has changed or removed of it since.

    Raises:
        InvalidFile: the record can't be read.
    """
    found = {}
    for name, bundle in read_record(base).bundles.items():
        state = State.of(base, bundle.files)
        changed = [path for path, hash in bundle.files.items() if state.files.get(path) != hash]
        hashes = state.server_hashes
        changed += [f"MCP server {each}" for each, hash in bundle.servers.items() if hashes.get(each) != hash]
        found[name] = bundle, changed
    return found


_FOLDERS: dict[DirectoryKind, str] = {"roles": "roles", "macros": "macros", "functions": "tools"}
"""Folders that a variable may name elsewhere, and what lies in them."""


def _tell_elsewhere(offer: Offer, base: Path, environ: Mapping[str, str], person: Person) -> None:
    """Say where things of a kind are looked for instead of the directory into which they are installed."""
    for folder, kind in _FOLDERS.items():
        used = user_folder(folder, base, environ)
        if used != base / folder and any(item.kind == kind for item in offer.items):
            variable = said(f"{folder}_dir", environ)[0]
            person.tell(
                f"{variable} has {kind} looked for in {used}: what goes into {base / folder} is not found there"
            )


def _begin(base: Path, person: Person) -> Record:
    if finish(base):
        person.tell("an install that was interrupted has been finished")
    return read_record(base)


def _known(record: Record, name: str) -> Bundle:
    bundle = record.bundles.get(name)
    if bundle is None:
        names = ", ".join(record.bundles)
        hint = did_you_mean(name, record.bundles) or (f"there are: {names}" if names else "none is installed")
        raise NotFound(f"no bundle '{name[:100]}' is installed; {hint}")
    return bundle


def _name_for(source: Source, path: str, record: Record) -> str:
    """What the bundle is called: as it is already, if it comes from there, else by its URL."""
    for name, bundle in record.bundles.items():
        if (bundle.url, bundle.path) == (source.url, path):
            return name
    wanted = OURS if source.url == BUILT_IN else source.name
    number, name = 1, wanted
    while name in record.bundles or (name == OURS and source.url != BUILT_IN):
        number += 1
        name = f"{wanted}-{number}"
    return name


def _source_of(bundle: Bundle) -> Source:
    if bundle.url == BUILT_IN:
        return _ours()
    if bundle.url.startswith("/"):
        folder = Path(bundle.url)
        if not folder.is_dir():
            raise UsageError(f"{folder}, from which it was installed, is no directory any more")
        return Source(url=bundle.url, folder=folder)
    return Source(url=bundle.url, ref=bundle.ref)


def _ours() -> Source:
    return Source(url=BUILT_IN, folder=LIBRARY)
