"""Offer of a source: its selected items with their contents and capabilities."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
import trio

from ....protocol.errors import InvalidFile, NotKept
from ....protocol.mcp.editing import entries_of
from ....protocol.version import VERSION
from ...io import temporary
from ...io.directories import user_folder
from ...io.named_files import is_name
from ..library import AGENTS
from ..tools.registry import ENDINGS
from .capabilities import Capabilities, capabilities_of, capabilities_of_server
from .layout import LARGEST_FILE, Item, SourceLayout, chosen, lay_out, refuse
from .source import BUILT_IN, KIB, BundleSource, SourceTree, list_folder
from .transaction import NewFile

if TYPE_CHECKING:
    from ....supervisors import Actor

Choose: TypeAlias = Callable[[Sequence[Item]], list[Item]]

LIBRARY = AGENTS.parent
"""Directory with the items that come with Callboard, in the layout of a bundle."""


class BundleCandidate(msgspec.Struct, frozen=True, kw_only=True):
    """Installable contents of a source.

    Attributes:
        commit: commit of the repository, or version of Callboard.
        items: selected items that can be used.
        files: new files by path in the configuration directory.
        servers: entries for mcp.json.
        abilities: capabilities by item label.
        left_out: items and files that are not installed, with the reason.
        withheld: items that are not installed; installed versions of them stay unchanged.
    """

    source: BundleSource
    commit: str
    items: tuple[Item, ...]
    files: dict[str, NewFile]
    servers: dict[str, Any]
    abilities: dict[str, Capabilities]
    left_out: tuple[str, ...] = ()
    withheld: tuple[Item, ...] = ()

    def withholds(self, path: str) -> bool:
        """Return whether a file of the configuration directory belongs to a withheld item."""
        return any(
            path.startswith(f"agents/{item.name}/") if item.kind == "agents" else path in item.files
            for item in self.withheld
        )

    def withholds_server(self, name: str) -> bool:
        """Return whether an MCP server is withheld."""
        return any(item.kind == "mcp" and item.name == name for item in self.withheld)

    def without(self, labels: Mapping[str, str]) -> BundleCandidate:
        """Return the offer without these items; the values are the reasons."""
        if not labels:
            return self
        items = tuple(item for item in self.items if item.label not in labels)
        paths = {path for item in items for path in item.files}
        named = {item.name for item in items if item.kind == "mcp"}
        return msgspec.structs.replace(
            self,
            items=items,
            files={path: new for path, new in self.files.items() if path in paths},
            servers={name: entry for name, entry in self.servers.items() if name in named},
            left_out=(*self.left_out, *(f"{label}: {why}" for label, why in labels.items())),
            withheld=(*self.withheld, *(item for item in self.items if item.label in labels)),
        )


async def read_candidate(
    me: Actor,
    source: BundleSource,
    environ: Mapping[str, str],
    *,
    base: Path,
    path: str = "",
    filters: Sequence[str] = (),
    strict: bool = True,
) -> BundleCandidate:
    """Fetch a source and read its offer. Nothing of it is run.

    Args:
        base: the configuration directory, whose own tools replace built-in ones.
        path: directory in the source with the bundle; "" to search for it.
        filters, strict: see `layout.chosen`.

    Raises:
        CallboardError: the source can't be fetched, has nothing to install, or is refused.
    """
    with _scratch() as scratch:
        if source.folder is not None:
            tree = await list_folder(source.folder)
        else:
            from .git import fetch

            into = scratch / "git"
            into.mkdir()
            tree = await fetch(me, source, into, environ)
        commit = VERSION if source.url == BUILT_IN else tree.commit
        choose = partial(chosen, filters=filters, strict=strict)
        offer = await _read(
            source, tree.below(path.strip("/")), commit, choose, scratch / "shown", own_tools(base, environ)
        )
    if strict and not offer.items:
        raise InvalidFile("\n  ".join(["nothing of it can be used:", *offer.left_out[:20]]))
    return offer


@contextmanager
def _scratch() -> Iterator[Path]:
    try:
        with temporary.directory("bundle-") as directory:
            yield directory
    except OSError as error:
        where = os.environ.get("TMPDIR") or "the directory for temporary files"
        raise NotKept(f"{where} can't be written to: {error.strerror or error}; TMPDIR names another one") from error


async def _read(
    source: BundleSource, tree: SourceTree, commit: str, choose: Choose, scratch: Path, own: set[str]
) -> BundleCandidate:
    layout = lay_out(tree)
    below = tree.below(layout.top)
    servers = await _servers(below, layout)
    everything = [*layout.items, *(Item(kind="mcp", name=name) for name in servers)]
    items = choose(everything)
    # Refused by names, sizes and kinds, before any content is read.
    refuse(items)
    servers = {item.name: servers[item.name] for item in items if item.kind == "mcp"}
    places = {target: entry for item in items for target, entry in item.files.items()}
    contents = await below.read(list(places.values()))
    files = {target: NewFile(contents[entry.path], entry.executable) for target, entry in places.items()}
    abilities = await trio.to_thread.run_sync(_capabilities, items, files, servers, scratch, own)
    offer = BundleCandidate(
        source=source,
        commit=commit,
        items=tuple(items),
        files=files,
        servers=servers,
        abilities=abilities,
        left_out=layout.left_out,
    )
    return offer.without({label: found.wrong for label, found in abilities.items() if found.wrong})


async def _servers(tree: SourceTree, layout: SourceLayout) -> dict[str, Any]:
    if layout.mcp is None:
        return {}
    file = layout.mcp
    if file.kind != "file" or file.size > LARGEST_FILE:
        raise InvalidFile(f"{file.path} is no plain file of at most {LARGEST_FILE // KIB} KiB")
    data = (await tree.read([file]))[file.path]
    try:
        servers = entries_of(data.decode(), file.path)
    except UnicodeDecodeError as error:
        raise InvalidFile(f"{file.path} is no UTF-8 text (byte {error.start})") from error
    odd = [name for name in servers if not is_name(name)]
    if odd:
        raise InvalidFile(
            f"{file.path} has a server of the name {odd[0][:100]!r}; names have letters, digits and . _ -"
        )
    return servers


def _capabilities(
    items: Sequence[Item], files: Mapping[str, NewFile], servers: Mapping[str, Any], scratch: Path, own: set[str]
) -> dict[str, Capabilities]:
    """Return the capabilities of all items.

    The files are written to `scratch` meanwhile, since the readers need paths.
    """
    for target, new in files.items():
        place = scratch / target
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(new.data)
    # A tool file of the user or of this bundle replaces a built-in tool of the same name, and runs without asking.
    tools = own | {item.name for item in items if item.kind == "tools"}
    return {
        item.label: capabilities_of_server(item.name, servers[item.name])
        if item.kind == "mcp"
        else capabilities_of(item, scratch, tools)
        for item in items
    }


def own_tools(base: Path, environ: Mapping[str, str] = os.environ) -> set[str]:
    """Return the names of the user's global tools that are files."""
    folder = user_folder("functions", base, environ) / "tools"
    return {path.stem for path in folder.glob("*") if path.suffix in ENDINGS}
