"""Install flow of an offer: plan, show, ask, check that nothing has changed since, and apply."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import trio

from ....protocol.errors import Conflict
from ..tools.registry import AICHAT_FILE, ENDINGS
from .candidate import BundleCandidate, own_tools
from .capabilities import Capabilities, capabilities_of, capabilities_of_server
from .layout import MCP_FILES, ONE, Item
from .manifest import NAME, Bundle, InstallManifest, encode_manifest, hash_of, hash_of_entry
from .plan import WRITTEN, InstallPlan, bundle_line, fates, preview_text
from .transaction import ConfigState, NewFile, apply_files, mcp_put


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
    """Plan, show, ask and apply. With `partly`, files outside of the offer stay unchanged."""
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
                f"nothing was installed, because there is another {', another '.join(taken)} already; "
                "--force replaces it, --filter selects other items, and without --yes Callboard asks"
            )
        if await person.ask(f"Replace what is there by {', '.join(taken)}?"):
            wished = _forced_only(plan)
        else:
            offer = offer.without(dict.fromkeys(taken, "another one is there, and stays"))
            wished = _planned(state, old, offer, others=not partly)
        plan = wished
    plan = plan.forced() if wishes.force else plan
    if not offer.items and not plan.files and not plan.servers:
        return InstallResult(name=name, lines=("there is nothing left to install",))
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
    """Apply the changes, unless the directory has changed since the plan: the user may have taken an hour to answer."""
    # mcp.json is part of the state as a text; the record is covered by the lock.
    if ConfigState.of(base, {**dict.fromkeys(state.files), **dict.fromkeys(puts.keys() - {NAME, *MCP_FILES})}) != state:
        raise Conflict(f"files in {base} have changed meanwhile, and nothing was done; run the command again")
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
                        f"{path} is there, and it brings {brought[0]}; remove that {ONE[item.kind]} first"
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
