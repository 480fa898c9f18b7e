"""Install plan, and its preview for the user. The plan is pure code over hashes: the fate of each file and MCP server.

| on disk    | in the record   | in the bundle  | fate      |
| ---------- | --------------- | -------------- | --------- |
| nothing    | anything        | a              | `new`     |
| a          | anything        | a              | `same`    |
| a          | a               | b              | `changed` |
| x          | a               | b              | `mine`    |
| x          | nothing         | b              | `taken`   |
| a          | a               | nothing        | `gone`    |
| x          | a               | nothing        | `left`    |

`mine` and `left` are changes by the user: such files stay unless force is used, and are listed. `taken` is a file of
other origin: without force or the user's consent the whole item is left out, since half an agent is useless.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from ....protocol.errors import InvalidFile
from .candidate import BundleCandidate, Capabilities
from .layout import Item
from .source import BUILT_IN
from .transaction import Bundle

Fate: TypeAlias = Literal["new", "same", "changed", "mine", "taken", "gone", "left"]
WRITTEN: tuple[Fate, ...] = ("new", "changed")


def fates(
    there: Mapping[str, str], recorded: Mapping[str, str], wanted: Mapping[str, str], *, others: bool = True
) -> dict[str, Fate]:
    """Return the effect of an install on each file or MCP server, by the table of the module; all three arguments are
    hashes by name.

    Args:
        others: also decide on names in the record that the bundle no longer has.
    """
    found: dict[str, Fate] = {name: _fate(there.get(name), recorded.get(name), hash) for name, hash in wanted.items()}
    if others:
        for name, hash in recorded.items():
            if name not in wanted and name in there:
                found[name] = "gone" if there[name] == hash else "left"
    return found


def _fate(there: str | None, recorded: str | None, wanted: str) -> Fate:
    if there is None:
        return "new"
    if there == wanted:
        return "same"
    if recorded is None:
        return "taken"
    return "changed" if there == recorded else "mine"


class InstallPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Changes of an install.

    Attributes:
        files: the fate of each file by its path in the configuration directory.
        servers: the fate of each entry of mcp.json.
    """

    files: dict[str, Fate]
    servers: dict[str, Fate]

    def forced(self) -> InstallPlan:
        """Return the plan that replaces or removes everything that would be kept."""
        return InstallPlan(files=_forced(self.files), servers=_forced(self.servers))

    @property
    def nothing_to_do(self) -> bool:
        """True if the plan writes and removes nothing, and contains no `taken` file or server."""
        return not {*self.files.values(), *self.servers.values()} & {"new", "changed", "gone", "taken"}


def _forced(found: Mapping[str, Fate]) -> dict[str, Fate]:
    instead: dict[Fate, Fate] = {"mine": "changed", "taken": "changed", "left": "gone"}
    return {name: instead.get(fate, fate) for name, fate in found.items()}


# --- preview for the user


_MOST_LINES = 2_000
_COMPARED = 256 * 1024


def preview_text(
    offer: BundleCandidate, plan: InstallPlan, base: Path, before: Mapping[str, Capabilities], head: str
) -> str:
    """Return the text about each item: its fate, and its new capabilities.

    Args:
        before: capabilities of the installed items, by label.

    Raises:
        InvalidFile: the text is too long to be read, so anything could hide in it.
    """
    lines = [head]
    for item in offer.items:
        lines += _item(item, offer, plan, base, before.get(item.label))
    left = [path for path, fate in plan.files.items() if fate == "gone"]
    lines += [f"  removes {path}" for path in left]
    lines += [f"  removes MCP server {name}" for name, fate in plan.servers.items() if fate == "gone"]
    kept = [path for path, fate in plan.files.items() if fate in ("mine", "left")]
    lines += [f"  keeps {path}, which you have edited" for path in kept]
    names = [name for name, fate in plan.servers.items() if fate in ("mine", "left")]
    lines += [f"  keeps MCP server {name}, which you have edited" for name in names]
    if offer.left_out:
        lines += ["Not taken:", *(f"  {text}" for text in offer.left_out[:40])]
        lines += [f"  and {len(offer.left_out) - 40} more"] if offer.left_out[40:] else []
    if len(lines) > _MOST_LINES:
        raise InvalidFile(
            f"the description of this bundle has {len(lines)} lines, too many to review; select items with --filter"
        )
    return "\n".join(lines)


def _item(
    item: Item, offer: BundleCandidate, plan: InstallPlan, base: Path, before: Capabilities | None
) -> Iterator[str]:
    fates = _fates_of_item(item, plan)
    if set(fates.values()) <= {"same"}:
        yield f"  {item.label}: stays as it is"
        return
    found = offer.abilities[item.label]
    yield f"  {item.label} ({_in_word(fates)}){f': {found.about}' if found.about else ''}"
    # Of an installed item only new capabilities are shown, so that they are noticed.
    can = found.can if before is None else [text for text in found.can if text not in before.can]
    mark = "" if before is None else "now also: "
    yield from (f"      {mark}{text}" for text in can)
    if before is not None:
        yield from (f"      {text}" for text in _changes(item, offer, fates, base))


def _fates_of_item(item: Item, plan: InstallPlan) -> dict[str, Fate]:
    if item.kind == "mcp":
        return {item.name: plan.servers[item.name]}
    return {path: plan.files[path] for path in item.files}


def _in_word(fates: Mapping[str, Fate]) -> str:
    kinds = set(fates.values())
    if kinds <= {"new"}:
        return "new"
    if "taken" in kinds:
        return "you have another one"
    return "changed" if kinds - {"same", "mine"} else "yours is kept"


def _changes(item: Item, offer: BundleCandidate, fates: Mapping[str, Fate], base: Path) -> Iterator[str]:
    for path, fate in fates.items():
        if item.kind == "mcp" or fate not in ("new", "changed"):
            continue
        new = offer.files[path].data
        if fate == "new":
            yield f"+ {path}"
            continue
        try:
            old = (base / path).read_bytes()
        except OSError:
            old = b""
        if max(len(old), len(new)) > _COMPARED or b"\0" in old + new:
            yield f"~ {path}"
            continue
        before, after = Counter(old.splitlines()), Counter(new.splitlines())
        yield f"~ {path} (lines: +{(after - before).total()} -{(before - after).total()})"


def bundle_line(name: str, bundle: Bundle) -> str:
    """Return name and origin of a bundle in one line."""
    if bundle.url == BUILT_IN:
        return f"{name}, which is built into Callboard {bundle.commit}"
    commit = f", commit {bundle.commit[:12]}" if len(bundle.commit) >= 40 else ""
    return f"{name} from {bundle.origin}{commit}"
