"""What becomes of each file and each MCP server of a bundle, as pure code over hashes.

| there is   | the record says | the bundle has | fate      |
| ---------- | --------------- | -------------- | --------- |
| nothing    | anything        | a              | `new`     |
| a          | anything        | a              | `same`    |
| a          | a               | b              | `changed` |
| x          | a               | b              | `mine`    |
| x          | nothing         | b              | `taken`   |
| a          | a               | nothing        | `gone`    |
| x          | a               | nothing        | `left`    |

`mine` and `left` are what the user has changed since: they stay unless force is used, and are named. `taken` was there
before: without force or an answer the whole item stays out, since half an agent is none.
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
    """The fate of each name; all three give hashes by name.

    Args:
        others: whether what the record has and the bundle has not is looked at as well.
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


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done.

    Attributes:
        files: the fate of each file by its path in the configuration directory.
        servers: the fate of each entry of mcp.json.
    """

    files: dict[str, Fate]
    servers: dict[str, Fate]

    def forced(self) -> Plan:
        """The same, where all that is in the way is replaced or removed."""
        return Plan(files=_forced(self.files), servers=_forced(self.servers))

    @property
    def nothing_to_do(self) -> bool:
        """Whether everything is there already."""
        return not {*self.files.values(), *self.servers.values()} & {"new", "changed", "gone", "taken"}


def _forced(found: Mapping[str, Fate]) -> dict[str, Fate]:
    instead: dict[Fate, Fate] = {"mine": "changed", "taken": "changed", "left": "gone"}
    return {name: instead.get(fate, fate) for name, fate in found.items()}
