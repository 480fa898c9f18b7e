"""What a source offers: its chosen items with their contents, and what each of them will be able to do."""

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
from .abilities import Abilities, abilities_of, abilities_of_server
from .carry_out import NewFile
from .folder import list_folder
from .layout import LARGEST_FILE, Item, Layout, chosen, lay_out, refuse
from .source import BUILT_IN, Source
from .tree import KIB, Tree

if TYPE_CHECKING:
    from ....supervisors import Actor

Choose: TypeAlias = Callable[[Sequence[Item]], list[Item]]

LIBRARY = AGENTS.parent
"""What comes with Callboard, which is laid out as a bundle is."""


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """What can be installed from a source.

    Attributes:
        commit: which state of it this is.
        items: what was chosen and can be used.
        files: what each file is to hold, by its path in the configuration directory.
        servers: entries for mcp.json.
        abilities: of each item, by its label.
        left_out: what is not taken, and why.
        withheld: items of it that are not taken; what is installed of them stays as it is.
    """

    source: Source
    commit: str
    items: tuple[Item, ...]
    files: dict[str, NewFile]
    servers: dict[str, Any]
    abilities: dict[str, Abilities]
    left_out: tuple[str, ...] = ()
    withheld: tuple[Item, ...] = ()

    def withholds(self, path: str) -> bool:
        """Whether a file of the configuration directory belongs to an item that is not taken."""
        return any(
            path.startswith(f"agents/{item.name}/") if item.kind == "agents" else path in item.files
            for item in self.withheld
        )

    def withholds_server(self, name: str) -> bool:
        """The same of an MCP server."""
        return any(item.kind == "mcp" and item.name == name for item in self.withheld)

    def without(self, labels: Mapping[str, str]) -> Offer:
        """The offer without these items; the values say why."""
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


async def offer_of(
    me: Actor,
    source: Source,
    environ: Mapping[str, str],
    *,
    base: Path,
    path: str = "",
    filters: Sequence[str] = (),
    strict: bool = True,
) -> Offer:
    """Fetch a source and read what it offers. Nothing of it is run.

    Args:
        base: the configuration directory, whose own tools stand in the place of built-in ones.
        path: the directory in it that is laid out as a bundle; "" to look for it.
        filters, strict: see `layout.chosen`.

    Raises:
        CallboardError: it can't be fetched, holds nothing of the kind, or is refused.
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


async def _read(source: Source, tree: Tree, commit: str, choose: Choose, scratch: Path, own: set[str]) -> Offer:
    layout = lay_out(tree)
    below = tree.below(layout.top)
    servers = await _servers(below, layout)
    everything = [*layout.items, *(Item(kind="mcp", name=name) for name in servers)]
    items = choose(everything)
    refuse(items)
    servers = {item.name: servers[item.name] for item in items if item.kind == "mcp"}
    places = {target: entry for item in items for target, entry in item.files.items()}
    contents = await below.read(list(places.values()))
    files = {target: NewFile(contents[entry.path], entry.executable) for target, entry in places.items()}
    abilities = await trio.to_thread.run_sync(_abilities, items, files, servers, scratch, own)
    offer = Offer(
        source=source,
        commit=commit,
        items=tuple(items),
        files=files,
        servers=servers,
        abilities=abilities,
        left_out=layout.left_out,
    )
    return offer.without({label: found.wrong for label, found in abilities.items() if found.wrong})


async def _servers(tree: Tree, layout: Layout) -> dict[str, Any]:
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


def _abilities(
    items: Sequence[Item], files: Mapping[str, NewFile], servers: Mapping[str, Any], scratch: Path, own: set[str]
) -> dict[str, Abilities]:
    """Of all items; those that read files want them on the disk, where they lie as long as that takes."""
    for target, new in files.items():
        place = scratch / target
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(new.data)
    tools = own | {item.name for item in items if item.kind == "tools"}
    return {
        item.label: abilities_of_server(item.name, servers[item.name])
        if item.kind == "mcp"
        else abilities_of(item, scratch, tools)
        for item in items
    }


def own_tools(base: Path, environ: Mapping[str, str] = os.environ) -> set[str]:
    """The names of the global tools that are files of the user's."""
    folder = user_folder("functions", base, environ) / "tools"
    return {path.stem for path in folder.glob("*") if path.suffix in ENDINGS}
