r"""Install, update, remove and list bundles. No terminal is needed: the caller passes an `InstallPrompts`.

    person = InstallPrompts(tell=print, ask=confirm)
    done = await install(me, base, "https://example.org/team/agents.git#v2", Wishes(), person, environ, here=here)
    print(*done.lines, sep="\n")

The steps are always the same: fetch, lock the directory, complete an interrupted install, plan, show, ask, check that
nothing has changed since the preview, and apply.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import trio

from ....protocol.environment import variable_value
from ....protocol.errors import NotFound, UsageError
from ....protocol.problems import did_you_mean
from ...io.directories import Kind as DirectoryKind
from ...io.directories import user_folder
from .candidate import LIBRARY, BundleCandidate, read_candidate
from .install_flow import InstallPrompts, InstallResult, Wishes, apply_bundle, apply_changes
from .manifest import NAME, Bundle, InstallManifest, encode_manifest, read_manifest
from .plan import InstallPlan, bundle_line, fates
from .source import BUILT_IN, BundleSource, read_source
from .transaction import ConfigState, NewFile, alone, finish, mcp_put

if TYPE_CHECKING:
    from ....supervisors import Actor

OURS = "builtin"
"""Name of the bundle with everything that comes with Callboard."""


async def install(
    me: Actor,
    base: Path,
    text: str,
    wishes: Wishes,
    person: InstallPrompts,
    environ: Mapping[str, str],
    *,
    here: Path,
) -> InstallResult:
    """Install the bundle at a URL or in a directory into the configuration directory `base`.

    Args:
        text: see `source.read_source`; `BUILT_IN` for the items that come with Callboard.
        here: directory that a relative path starts from.

    Raises:
        CallboardError: the bundle can't be fetched, is refused, or conflicts with existing files.
    """
    source = _ours() if text == BUILT_IN else read_source(text, here)
    # Fetched before the lock is taken: a fetch can take minutes.
    offer = await read_candidate(me, source, environ, base=base, path=wishes.path, filters=wishes.filters)
    _report_other_directories(offer, base, environ, person)
    with alone(base):
        record = _begin(base, person)
        name = _name_for(source, wishes.path, record)
        old = record.bundles.get(name)
        # A bundle that is installed completely stays complete; otherwise new filters are added to the old ones.
        filters = () if old is not None and not old.filter else wishes.filters
        if old is not None and wishes.filters:
            filters = tuple(dict.fromkeys([*old.filter, *wishes.filters])) if old.filter else ()
        new = Bundle(url=source.url, ref=source.ref, path=wishes.path, commit=offer.commit, filter=filters)
        partly = old is not None and bool(wishes.filters)
        return await apply_bundle(base, name, record, new, offer, wishes, person, partly=partly)


async def update(
    me: Actor, base: Path, name: str, wishes: Wishes, person: InstallPrompts, environ: Mapping[str, str]
) -> InstallResult:
    """Fetch an installed bundle again, and install the changes.

    Raises:
        NotFound: no bundle of this name is installed.
        CallboardError: as `install`.
    """
    old = _known(read_manifest(base), name)
    source = _source_of(old)
    offer = await read_candidate(me, source, environ, base=base, path=old.path, filters=old.filter, strict=False)
    _report_other_directories(offer, base, environ, person)
    with alone(base):
        # Read the record again: another process may have changed it before the lock was held.
        record = _begin(base, person)
        old = _known(record, name)
        new = msgspec.structs.replace(old, commit=offer.commit, files={}, servers={})
        return await apply_bundle(base, name, record, new, offer, wishes, person)


async def remove(base: Path, name: str, wishes: Wishes, person: InstallPrompts) -> InstallResult:
    """Remove the files of a bundle. Files that the user has changed stay, unless `force` is set.

    Raises:
        NotFound: no bundle of this name is installed.
    """
    with alone(base):
        record = _begin(base, person)
        bundle = _known(record, name)
        # Planned against an empty bundle: every recorded file is removed, or left if the user has changed it.
        state = await trio.to_thread.run_sync(ConfigState.of, base, bundle.files)
        plan = InstallPlan(
            files=fates(state.files, bundle.files, {}), servers=fates(state.server_hashes, bundle.servers, {})
        )
        plan = plan.forced() if wishes.force else plan
        files = [path for path, fate in plan.files.items() if fate == "gone"]
        servers = [server for server, fate in plan.servers.items() if fate == "gone"]
        kept = [path for path, fate in plan.files.items() if fate == "left"]
        kept += [f"MCP server {server}" for server, fate in plan.servers.items() if fate == "left"]
        lines = [f"removes {path}" for path in files] + [f"removes MCP server {server}" for server in servers]
        lines += [f"keeps {path}, which you have changed" for path in kept]
        person.tell("\n".join([f"Bundle {bundle_line(name, bundle)}", *(f"  {line}" for line in lines)]))
        if not wishes.yes and not await person.ask(f"Remove {name}?"):
            return InstallResult(name=name, refused=True, lines=("nothing was removed",))
        puts = mcp_put(state, {}, servers)
        puts[NAME] = NewFile(encode_manifest(record.with_bundle(name, None)))
        await trio.to_thread.run_sync(apply_changes, base, state, puts, files)
    told = [f"removed {name}: {len(files)} files" + (f", {len(servers)} MCP servers" if servers else "")]
    return InstallResult(
        name=name, changed=True, lines=(*told, *(f"unchanged, because you have edited it: {path}" for path in kept))
    )


def installed(base: Path) -> dict[str, tuple[Bundle, list[str]]]:
    """Return all bundles by name, each with the items that the user has changed or removed.

    Raises:
        InvalidFile: the record can't be read.
    """
    found = {}
    for name, bundle in read_manifest(base).bundles.items():
        state = ConfigState.of(base, bundle.files)
        changed = [path for path, hash in bundle.files.items() if state.files.get(path) != hash]
        hashes = state.server_hashes
        changed += [f"MCP server {each}" for each, hash in bundle.servers.items() if hashes.get(each) != hash]
        found[name] = bundle, changed
    return found


_FOLDERS: dict[DirectoryKind, str] = {"roles": "roles", "macros": "macros", "functions": "tools"}
"""Directories that a variable can move elsewhere, with the kind of their items."""


def _report_other_directories(
    offer: BundleCandidate, base: Path, environ: Mapping[str, str], person: InstallPrompts
) -> None:
    """Warn if a variable makes Callboard search another directory than the one that is installed into."""
    for folder, kind in _FOLDERS.items():
        used = user_folder(folder, base, environ)
        if used != base / folder and any(item.kind == kind for item in offer.items):
            variable = variable_value(f"{folder}_dir", environ)[0]
            person.tell(
                f"{variable} sets the directory of {kind} to {used}, so files"
                f" installed into {base / folder} are not used"
            )


def _begin(base: Path, person: InstallPrompts) -> InstallManifest:
    if finish(base):
        person.tell("an install that was interrupted has been finished")
    return read_manifest(base)


def _known(record: InstallManifest, name: str) -> Bundle:
    bundle = record.bundles.get(name)
    if bundle is None:
        names = ", ".join(record.bundles)
        hint = did_you_mean(name, record.bundles) or (f"there are: {names}" if names else "none is installed")
        raise NotFound(f"no bundle '{name[:100]}' is installed; {hint}")
    return bundle


def _name_for(source: BundleSource, path: str, record: InstallManifest) -> str:
    """Return the name of the bundle: its existing name if it was installed from there, else one from its URL."""
    for name, bundle in record.bundles.items():
        if (bundle.url, bundle.path) == (source.url, path):
            return name
    wanted = OURS if source.url == BUILT_IN else source.name
    number, name = 1, wanted
    # The name of the built-in bundle is reserved.
    while name in record.bundles or (name == OURS and source.url != BUILT_IN):
        number += 1
        name = f"{wanted}-{number}"
    return name


def _source_of(bundle: Bundle) -> BundleSource:
    if bundle.url == BUILT_IN:
        return _ours()
    if bundle.url.startswith("/"):
        folder = Path(bundle.url)
        if not folder.is_dir():
            raise UsageError(f"{folder}, from which it was installed, is no directory any more")
        return BundleSource(url=bundle.url, folder=folder)
    return BundleSource(url=bundle.url, ref=bundle.ref)


def _ours() -> BundleSource:
    return BundleSource(url=BUILT_IN, folder=LIBRARY)
