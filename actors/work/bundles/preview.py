"""Preview of an install or update for the user."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from ....protocol.errors import InvalidFile
from .abilities import Abilities
from .layout import Item
from .offer import BundleOffer
from .plan import Fate, InstallPlan
from .record import Bundle
from .source import BUILT_IN

_MOST_LINES = 2_000
_COMPARED = 256 * 1024


def offer_text(offer: BundleOffer, plan: InstallPlan, base: Path, before: Mapping[str, Abilities], head: str) -> str:
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
    lines += [f"  keeps {path}, which you have changed" for path in kept]
    names = [name for name, fate in plan.servers.items() if fate in ("mine", "left")]
    lines += [f"  keeps MCP server {name}, which you have changed" for name in names]
    if offer.left_out:
        lines += ["Not taken:", *(f"  {text}" for text in offer.left_out[:40])]
        lines += [f"  and {len(offer.left_out) - 40} more"] if offer.left_out[40:] else []
    if len(lines) > _MOST_LINES:
        raise InvalidFile(
            f"this bundle takes {len(lines)} lines to describe, which are too many to be read; choose by --filter"
        )
    return "\n".join(lines)


def _item(item: Item, offer: BundleOffer, plan: InstallPlan, base: Path, before: Abilities | None) -> Iterator[str]:
    fates = _fates(item, plan)
    if set(fates.values()) <= {"same"}:
        yield f"  {item.label}: as it is"
        return
    found = offer.abilities[item.label]
    yield f"  {item.label} ({_in_word(fates)}){f': {found.about}' if found.about else ''}"
    # Of an installed item only new capabilities are shown, so that they are noticed.
    can = found.can if before is None else [text for text in found.can if text not in before.can]
    mark = "" if before is None else "now also: "
    yield from (f"      {mark}{text}" for text in can)
    if before is not None:
        yield from (f"      {text}" for text in _changes(item, offer, fates, base))


def _fates(item: Item, plan: InstallPlan) -> dict[str, Fate]:
    if item.kind == "mcp":
        return {item.name: plan.servers[item.name]}
    return {path: plan.files[path] for path in item.files}


def _in_word(fates: Mapping[str, Fate]) -> str:
    kinds = set(fates.values())
    if kinds <= {"new"}:
        return "new"
    if "taken" in kinds:
        return "another one is there"
    return "changed" if kinds - {"same", "mine"} else "yours is kept"


def _changes(item: Item, offer: BundleOffer, fates: Mapping[str, Fate], base: Path) -> Iterator[str]:
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
    """Return a bundle as one line."""
    if bundle.url == BUILT_IN:
        return f"{name}, which comes with Callboard {bundle.commit}"
    commit = f", commit {bundle.commit[:12]}" if len(bundle.commit) >= 40 else ""
    return f"{name} from {bundle.shown}{commit}"
