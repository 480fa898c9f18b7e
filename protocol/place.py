"""Where a part of a run may be played: `place` of map nodes, of agent nodes, and of agents.

    place: here              where its run is played
    place: anywhere          by any worker of the cluster that the run is played in
    place: {needs: [gpu]}    by one that has these labels

A part that is played elsewhere is a run of its own, for which the other one waits (`PartOf`, in its request). Outside
of a cluster there is one place only, and all of it is played there.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from .permissions import Permissions
from .sandbox import OwnSandbox

HERE = "here"
ANYWHERE = "anywhere"


class Needs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which worker of a cluster may play it."""

    needs: Annotated[tuple[str, ...], Meta(description="Labels that the worker must have (`--has`).")]


Place: TypeAlias = Literal["here", "anywhere"] | Needs
PLACE = Meta(
    description="In a cluster, who plays it: the worker of its run (here), any worker (anywhere), or one with labels "
    "(needs)."
)


def needs_of(place: Place | None) -> tuple[str, ...] | None:
    """The labels that a worker must have to play a part; None for one that is played here."""
    if isinstance(place, Needs):
        return place.needs
    return () if place == ANYWHERE else None


class Branch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One item of a map, with the branch that is played for it.

    Attributes:
        node: the map node.
        item: the item; index: its number, from 0.
        state: that of the graph.
    """

    node: str
    item: Any
    index: int
    state: dict[str, Any]


class PartOf(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a run is told that is a part of another.

    Attributes:
        run: the other one.
        depth: agents that stand above it; max_depth: how many may stand above each other.
        denied: what those above it deny to all that works below them.
        held: what their files say of processes.
        untrusted, private: what it carries from the beginning; see `labels`.
        branch: of a graph, what is played of it; None for all.
    """

    run: str
    depth: int = 0
    max_depth: int | None = None
    denied: tuple[Permissions, ...] = ()
    held: tuple[OwnSandbox, ...] = ()
    untrusted: tuple[str, ...] = ()
    private: tuple[str, ...] = ()
    branch: Branch | None = None


class Carried(msgspec.Struct, frozen=True, kw_only=True):
    """What a part carries at its end; see `labels`."""

    untrusted: tuple[str, ...] = ()
    private: tuple[str, ...] = ()
