"""Settles what becomes of an offer: plans, tells, asks, looks again whether all is as it was, and carries out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import trio

from ....protocol.errors import Conflict
from ..agent.aichat import INDEX
from ..tools.registry import ENDINGS
from .abilities import Abilities, abilities_of, abilities_of_server
from .carry_out import NewFile, carry_out
from .layout import MCP_FILES, ONE, Item
from .offer import Offer, own_tools
from .plan import WRITTEN, Plan, fates
from .preview import shown_bundle, shown_offer
from .record import NAME, Bundle, Record, hash_of, hash_of_entry, written
from .state import State, mcp_put


class Wishes(msgspec.Struct, frozen=True, kw_only=True):
    """How something is to be installed.

    Attributes:
        filters: kinds (`roles`), names (`coder`) or both (`agents/coder`); none for everything.
        path: the directory in the repository; "" to look for it.
        force: what is in the way is replaced, what the user has changed too.
        yes: nothing is asked; what is in the way without `force` is an error then.
    """

    filters: tuple[str, ...] = ()
    path: str = ""
    force: bool = False
    yes: bool = False


class Person(msgspec.Struct, frozen=True, kw_only=True):
    """Tells a person, and asks them. `ask` may raise `NobodyToAsk`; then nothing is done."""

    tell: Callable[[str], None]
    ask: Callable[[str], Awaitable[bool]]


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """What became of it.

    Attributes:
        name: of the bundle.
        changed: whether something was done.
        refused: whether the person said no.
        lines: about it.
    """

    name: str
    changed: bool = False
    refused: bool = False
    lines: tuple[str, ...] = ()


async def settle(
    base: Path,
    name: str,
    record: Record,
    new: Bundle,
    offer: Offer,
    wishes: Wishes,
    person: Person,
    *,
    partly: bool = False,
) -> Done:
    """Plan, tell, ask and carry out. `partly`: what is not in the offer stays as it is."""
    old = record.bundles.get(name)
    known = old.files if old is not None else {}
    state = await trio.to_thread.run_sync(State.of, base, {**known, **offer.files})
    offer = offer.without(_two_of_a_kind(base, offer, known, state))
    plan = _planned(state, old, offer, others=not partly)
    before = await trio.to_thread.run_sync(_abilities_now, base, offer, old, state)
    shown = plan.forced() if wishes.force else plan
    person.tell(shown_offer(offer, shown, base, before, f"Bundle {shown_bundle(name, new)}"))
    if old is not None and shown.nothing_to_do and not {*plan.files} - {*old.files}:
        await _carried(base, name, record, new, offer, plan, state)
        return Done(name=name, lines=(f"{name} is up to date",))
    taken = _taken(offer, plan)
    if taken and not wishes.force:
        if wishes.yes:
            raise Conflict(
                f"nothing was installed, since there is another {', another '.join(taken)} already; "
                "--force replaces, --filter chooses, and at a terminal you are asked"
            )
        if await person.ask(f"Replace what is there by {', '.join(taken)}?"):
            wished = _forced_only(plan)
        else:
            offer = offer.without(dict.fromkeys(taken, "another one is there, and stays"))
            wished = _planned(state, old, offer, others=not partly)
        plan = wished
    plan = plan.forced() if wishes.force else plan
    if not offer.items and not plan.files and not plan.servers:
        return Done(name=name, lines=("there is nothing left to install",))
    if not wishes.yes and not await person.ask(f"Install {name}?" if old is None else f"Change {name} so?"):
        return Done(name=name, refused=True, lines=("nothing was changed",))
    return await _carried(base, name, record, new, offer, plan, state)


async def _carried(base: Path, name: str, record: Record, new: Bundle, offer: Offer, plan: Plan, state: State) -> Done:
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
    await trio.to_thread.run_sync(carried_out, base, state, {**puts, **mcp, NAME: NewFile(written(record))}, removes)
    kept = [path for path, fate in plan.files.items() if fate in ("mine", "left")]
    kept += [f"MCP server {server}" for server, fate in plan.servers.items() if fate in ("mine", "left")]
    counts = [f"{len(puts)} {'file' if len(puts) == 1 else 'files'} written"]
    counts += [f"{len(removes)} removed"] if removes else []
    counts += [f"MCP servers in {state.mcp_file}: {', '.join(entries)}"] if entries else []
    lines = [f"installed {shown_bundle(name, bundle)}: {', '.join(counts)}"]
    lines += [f"kept, since you have changed it: {path}" for path in kept]
    return Done(name=name, changed=True, lines=tuple(lines))


def _recorded(found: Mapping[str, str], hashes: Mapping[str, str], old: Mapping[str, str]) -> dict[str, str]:
    """What the record says afterwards: of what was kept, what it said before; and what was not looked at."""
    ended = {name for name, fate in found.items() if fate in ("gone", "left")}
    kept = {name: hash for name, hash in old.items() if name not in ended}
    now = {name: hashes[name] for name, fate in found.items() if fate in ("new", "same", "changed")}
    return dict(sorted({**kept, **now}.items()))


def carried_out(base: Path, state: State, puts: Mapping[str, NewFile], removes: list[str]) -> None:
    """Carry out, unless something has changed since it was planned: a person may have thought for an hour."""
    if State.of(base, {**dict.fromkeys(state.files), **dict.fromkeys(puts.keys() - {NAME, *MCP_FILES})}) != state:
        raise Conflict(f"files in {base} have changed meanwhile, and nothing was done; run the command again")
    carry_out(base, puts, removes)


def _planned(state: State, old: Bundle | None, offer: Offer, *, others: bool) -> Plan:
    hashes = {path: hash_of(new.data) for path, new in offer.files.items()}
    entries = {name: hash_of_entry(entry) for name, entry in offer.servers.items()}
    files = {path: hash for path, hash in (old.files if old else {}).items() if not offer.withholds(path)}
    servers = {name: hash for name, hash in (old.servers if old else {}).items() if not offer.withholds_server(name)}
    return Plan(
        files=fates(state.files, files, hashes, others=others),
        servers=fates(state.server_hashes, servers, entries, others=others),
    )


def _forced_only(plan: Plan) -> Plan:
    """Where only what was there before is replaced, and not what the user has changed of the bundle itself."""
    return Plan(
        files={name: "changed" if fate == "taken" else fate for name, fate in plan.files.items()},
        servers={name: "changed" if fate == "taken" else fate for name, fate in plan.servers.items()},
    )


def _taken(offer: Offer, plan: Plan) -> list[str]:
    """The items in whose place there is something else."""
    return [
        item.label
        for item in offer.items
        if any(plan.files.get(path) == "taken" for path in item.files)
        or (item.kind == "mcp" and plan.servers.get(item.name) == "taken")
    ]


def _two_of_a_kind(base: Path, offer: Offer, known: Mapping[str, str], state: State) -> dict[str, str]:
    """Agents and tools that would have two files of which one alone counts, through one that is there and stays."""
    found = {}
    for item in offer.items:
        for home, rivals in _rivals(item):
            brought = [name for name in rivals if f"{home}/{name}" in item.files]
            for name in rivals:
                path = f"{home}/{name}"
                stays = (base / path).exists() and (path not in known or state.files.get(path) != known[path])
                if brought and name not in brought and stays:
                    found[item.label] = (
                        f"{path} is there, and it brings {brought[0]}; remove that {ONE[item.kind]} first"
                    )
    return found


def _rivals(item: Item) -> list[tuple[str, tuple[str, ...]]]:
    """Directories of an item, each with names of files of which one alone may be there."""
    if item.kind == "tools":
        return [("functions/tools", tuple(f"{item.name}{ending}" for ending in ENDINGS))]
    if item.kind == "agents":
        of_tools = tuple(f"tools{ending}" for ending in ENDINGS)
        return [(f"agents/{item.name}", names) for names in (("config.yaml", "graph.yaml", INDEX), of_tools)]
    return []


def _abilities_now(base: Path, offer: Offer, old: Bundle | None, state: State) -> dict[str, Abilities]:
    """What the items of the bundle can do as they are installed now."""
    if old is None:
        return {}
    found = {}
    tools = own_tools(base)
    for item in offer.items:
        if item.kind == "mcp" and item.name in old.servers and item.name in state.servers:
            found[item.label] = abilities_of_server(item.name, state.servers[item.name])
        elif item.kind != "mcp" and (there := {p: e for p, e in item.files.items() if p in old.files}):
            now = msgspec.structs.replace(item, files=there)
            found[item.label] = abilities_of(now, base, tools)
    return found
