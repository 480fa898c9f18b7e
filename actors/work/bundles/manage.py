r"""Install, update, remove and list bundles. No terminal is needed: the caller passes an `InstallPrompts`.

    person = InstallPrompts(tell=print, ask=confirm)
    done = await install(me, base, "https://example.org/team/agents.git#v2", Wishes(), person, environ, here=here)
    print(*done.lines, sep="\n")

The steps are always the same: fetch, lock the directory, complete an interrupted install, and then `apply_bundle`:
plan, show, ask, check that nothing has changed since the preview, and apply.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import trio

from ....protocol.environment import variable_value
from ....protocol.errors import Conflict, NotFound, UsageError
from ....protocol.problems import did_you_mean
from ...io.directories import Kind as DirectoryKind
from ...io.directories import user_folder
from ..tools.registry import AICHAT_FILE, ENDINGS
from .candidate import (
    LIBRARY,
    BundleCandidate,
    Capabilities,
    capabilities_of,
    capabilities_of_server,
    own_tools,
    read_candidate,
)
from .layout import MCP_FILES, ONE, Item
from .plan import WRITTEN, InstallPlan, bundle_line, fates, preview_text
from .source import BUILT_IN, BundleSource, read_source
from .transaction import (
    NAME,
    Bundle,
    ConfigState,
    InstallManifest,
    NewFile,
    alone,
    apply_files,
    encode_manifest,
    finish,
    hash_of,
    hash_of_entry,
    mcp_put,
    read_manifest,
)

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
    """Remove the files of a bundle, after asking unless `wishes.yes`.

    Files that the user has changed stay, unless `wishes.force`.

    Raises:
        NotFound: no bundle of this name is installed.
        Conflict: another process is installing, or files have changed since the preview.
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
        lines += [f"keeps {path}, which you have edited" for path in kept]
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
    """Return all bundles by name, each with the files and servers that the user has changed or removed. Blocks.

    Raises:
        InvalidFile: the record or mcp.json can't be read.
        Conflict: an installed file can't be read, or is now a directory.
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
        person.tell("an earlier install that had been interrupted was completed first")
    return read_manifest(base)


def _known(record: InstallManifest, name: str) -> Bundle:
    bundle = record.bundles.get(name)
    if bundle is None:
        names = ", ".join(record.bundles)
        hint = did_you_mean(name, record.bundles) or (f"there are: {names}" if names else "no bundle is installed")
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
            raise UsageError(f"{folder}, from which the bundle was installed, is no longer a directory")
        return BundleSource(url=bundle.url, folder=folder)
    return BundleSource(url=bundle.url, ref=bundle.ref)


def _ours() -> BundleSource:
    return BundleSource(url=BUILT_IN, folder=LIBRARY)


class Wishes(msgspec.Struct, frozen=True, kw_only=True):
    """Options of an install.

    Attributes:
        filters: kinds (`roles`), names (`coder`) or both (`agents/coder`); none for everything.
        path: directory in the repository; "" to search for it.
        force: replace existing items, even if the user has changed them.
        yes: ask nothing; then an existing item without `force` is an error.
    """

    filters: tuple[str, ...] = ()
    path: str = ""
    force: bool = False
    yes: bool = False


class InstallPrompts(msgspec.Struct, frozen=True, kw_only=True):
    """Callbacks that print to the user and ask. `ask` may raise `NobodyToAsk`; then nothing is changed."""

    tell: Callable[[str], None]
    ask: Callable[[str], Awaitable[bool]]


class InstallResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of an install, update or removal.

    Attributes:
        name: name of the bundle.
        changed: something was changed.
        refused: the user said no.
        lines: messages about it.
    """

    name: str
    changed: bool = False
    refused: bool = False
    lines: tuple[str, ...] = ()


async def apply_bundle(
    base: Path,
    name: str,
    record: InstallManifest,
    new: Bundle,
    offer: BundleCandidate,
    wishes: Wishes,
    person: InstallPrompts,
    *,
    partly: bool = False,
) -> InstallResult:
    """Plan an install or update, show it, ask the user, and apply it. The caller holds the lock (`alone`).

    Args:
        record: all installed bundles; the one called `name` is replaced by `new`.
        partly: installed files that are not in the offer stay. Else they are removed, unless the user has edited them.

    Raises:
        Conflict: with `wishes.yes`, an unrelated existing item would be replaced without `force`; or files have changed
            since the preview.
        NotKept: a write failed.
    """
    old = record.bundles.get(name)
    known = old.files if old is not None else {}
    state = await trio.to_thread.run_sync(ConfigState.of, base, {**known, **offer.files})
    offer = offer.without(_two_of_a_kind(base, offer, known, state))
    plan = _planned(state, old, offer, others=not partly)
    before = await trio.to_thread.run_sync(_current_capabilities, base, offer, old, state)
    shown = plan.forced() if wishes.force else plan
    person.tell(preview_text(offer, shown, base, before, f"Bundle {bundle_line(name, new)}"))
    # No file changes, but the record gets the new commit.
    if old is not None and shown.nothing_to_do and not {*plan.files} - {*old.files}:
        await _apply(base, name, record, new, offer, plan, state)
        return InstallResult(name=name, lines=(f"{name} is up to date",))
    taken = _taken(offer, plan)
    if taken and not wishes.force:
        # `--yes` answers questions about the install, but must not overwrite unrelated files unasked.
        if wishes.yes:
            raise Conflict(
                f"nothing was installed, because you already have another {', another '.join(taken)}; "
                "replace it with --force, select other items with --filter, or leave out --yes to be asked"
            )
        if await person.ask(f"Replace the {', '.join(taken)} that you have?"):
            wished = _forced_only(plan)
        else:
            offer = offer.without(dict.fromkeys(taken, "not installed: you have another one, which is kept"))
            wished = _planned(state, old, offer, others=not partly)
        plan = wished
    plan = plan.forced() if wishes.force else plan
    if not offer.items and not plan.files and not plan.servers:
        return InstallResult(name=name, lines=("no item is left to install",))
    if not wishes.yes and not await person.ask(f"Install {name}?" if old is None else f"Change {name} so?"):
        return InstallResult(name=name, refused=True, lines=("nothing was changed",))
    return await _apply(base, name, record, new, offer, plan, state)


async def _apply(
    base: Path,
    name: str,
    record: InstallManifest,
    new: Bundle,
    offer: BundleCandidate,
    plan: InstallPlan,
    state: ConfigState,
) -> InstallResult:
    old = record.bundles.get(name)
    puts = {path: offer.files[path] for path, fate in plan.files.items() if fate in WRITTEN}
    removes = [path for path, fate in plan.files.items() if fate == "gone"]
    entries = {server: offer.servers[server] for server, fate in plan.servers.items() if fate in WRITTEN}
    gone = [server for server, fate in plan.servers.items() if fate == "gone"]
    mcp = mcp_put(state, entries, gone)
    hashes = {path: hash_of(new.data) for path, new in offer.files.items()}
    server_hashes = {server: hash_of_entry(entry) for server, entry in offer.servers.items()}
    bundle = msgspec.structs.replace(
        new,
        date=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        files=_recorded(plan.files, hashes, old.files if old else {}),
        servers=_recorded(plan.servers, server_hashes, old.servers if old else {}),
    )
    record = record.with_bundle(name, bundle)
    await trio.to_thread.run_sync(
        apply_changes, base, state, {**puts, **mcp, NAME: NewFile(encode_manifest(record))}, removes
    )
    kept = [path for path, fate in plan.files.items() if fate in ("mine", "left")]
    kept += [f"MCP server {server}" for server, fate in plan.servers.items() if fate in ("mine", "left")]
    counts = [f"{len(puts)} {'file' if len(puts) == 1 else 'files'} written"]
    counts += [f"{len(removes)} removed"] if removes else []
    counts += [f"MCP servers in {state.mcp_file}: {', '.join(entries)}"] if entries else []
    lines = [f"installed {bundle_line(name, bundle)}: {', '.join(counts)}"]
    lines += [f"unchanged, because you have edited it: {path}" for path in kept]
    return InstallResult(name=name, changed=True, lines=tuple(lines))


def _recorded(found: Mapping[str, str], hashes: Mapping[str, str], old: Mapping[str, str]) -> dict[str, str]:
    """Return the hashes for the new record.

    A file that is kept, or was not examined, keeps its old hash. A file that no longer belongs to the bundle has none.
    """
    ended = {name for name, fate in found.items() if fate in ("gone", "left")}
    kept = {name: hash for name, hash in old.items() if name not in ended}
    now = {name: hashes[name] for name, fate in found.items() if fate in ("new", "same", "changed")}
    return dict(sorted({**kept, **now}.items()))


def apply_changes(base: Path, state: ConfigState, puts: Mapping[str, NewFile], removes: list[str]) -> None:
    """Apply the changes, unless the directory has changed since the plan: the user may have taken an hour to answer.

    Raises:
        Conflict: a file of the plan or mcp.json has changed; nothing is written.
        NotKept: a write failed.
    """
    # mcp.json is part of the state as a text; the record is covered by the lock.
    if ConfigState.of(base, {**dict.fromkeys(state.files), **dict.fromkeys(puts.keys() - {NAME, *MCP_FILES})}) != state:
        raise Conflict(
            f"files in {base} were changed by another program in the meantime, and nothing was installed; run "
            "the command again"
        )
    apply_files(base, puts, removes)


def _planned(state: ConfigState, old: Bundle | None, offer: BundleCandidate, *, others: bool) -> InstallPlan:
    hashes = {path: hash_of(new.data) for path, new in offer.files.items()}
    entries = {name: hash_of_entry(entry) for name, entry in offer.servers.items()}
    files = {path: hash for path, hash in (old.files if old else {}).items() if not offer.withholds(path)}
    servers = {name: hash for name, hash in (old.servers if old else {}).items() if not offer.withholds_server(name)}
    return InstallPlan(
        files=fates(state.files, files, hashes, others=others),
        servers=fates(state.server_hashes, servers, entries, others=others),
    )


def _forced_only(plan: InstallPlan) -> InstallPlan:
    """Return the plan that replaces other existing items, but not the user's changes to items of the bundle itself."""
    return InstallPlan(
        files={name: "changed" if fate == "taken" else fate for name, fate in plan.files.items()},
        servers={name: "changed" if fate == "taken" else fate for name, fate in plan.servers.items()},
    )


def _taken(offer: BundleCandidate, plan: InstallPlan) -> list[str]:
    """Return the labels of items that would replace an unrelated existing one."""
    return [
        item.label
        for item in offer.items
        if any(plan.files.get(path) == "taken" for path in item.files)
        or (item.kind == "mcp" and plan.servers.get(item.name) == "taken")
    ]


def _two_of_a_kind(base: Path, offer: BundleCandidate, known: Mapping[str, str], state: ConfigState) -> dict[str, str]:
    """Return the items that would have two competing files because an existing one stays, with the reason."""
    found = {}
    for item in offer.items:
        for home, rivals in _rivals(item):
            brought = [name for name in rivals if f"{home}/{name}" in item.files]
            for name in rivals:
                path = f"{home}/{name}"
                # An unchanged file of the bundle does not stay: this install replaces or removes it.
                stays = (base / path).exists() and (path not in known or state.files.get(path) != known[path])
                if brought and name not in brought and stays:
                    found[item.label] = (
                        f"{path} exists, and the bundle brings {brought[0]}; remove that {ONE[item.kind]} first"
                    )
    return found


def _rivals(item: Item) -> list[tuple[str, tuple[str, ...]]]:
    """Return directories of an item, each with names of files that exclude each other."""
    if item.kind == "tools":
        return [("functions/tools", tuple(f"{item.name}{ending}" for ending in ENDINGS))]
    if item.kind == "agents":
        of_tools = tuple(f"tools{ending}" for ending in ENDINGS)
        return [(f"agents/{item.name}", names) for names in (("config.yaml", "graph.yaml", AICHAT_FILE), of_tools)]
    return []


def _current_capabilities(
    base: Path, offer: BundleCandidate, old: Bundle | None, state: ConfigState
) -> dict[str, Capabilities]:
    """Return the current capabilities of the items that are installed already."""
    if old is None:
        return {}
    found = {}
    tools = own_tools(base)
    for item in offer.items:
        if item.kind == "mcp" and item.name in old.servers and item.name in state.servers:
            found[item.label] = capabilities_of_server(item.name, state.servers[item.name])
        elif item.kind != "mcp" and (there := {p: e for p, e in item.files.items() if p in old.files}):
            # Only files that the bundle itself has installed: others are not its capabilities.
            now = msgspec.structs.replace(item, files=there)
            found[item.label] = capabilities_of(now, base, tools)
    return found
