"""Install plan: the fate of each file and each MCP server of a bundle, as pure code over hashes.

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

from collections.abc import Mapping
from typing import Literal, TypeAlias

import msgspec

Fate: TypeAlias = Literal["new", "same", "changed", "mine", "taken", "gone", "left"]
WRITTEN: tuple[Fate, ...] = ("new", "changed")


def fates(
    there: Mapping[str, str], recorded: Mapping[str, str], wanted: Mapping[str, str], *, others: bool = True
) -> dict[str, Fate]:
    """Return the fate of each name; all three arguments are hashes by name.

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
        """True if the plan changes nothing."""
        return not {*self.files.values(), *self.servers.values()} & {"new", "changed", "gone", "taken"}


def _forced(found: Mapping[str, Fate]) -> dict[str, Fate]:
    instead: dict[Fate, Fate] = {"mine": "changed", "taken": "changed", "left": "gone"}
    return {name: instead.get(fate, fate) for name, fate in found.items()}
