"""Placement of remote children: `place` of map nodes, of agent nodes, and of agents.

    place: here              on the worker of its run
    place: anywhere          on any worker of the cluster that executes the run
    place: {needs: [gpu]}    on a worker with these labels

A remote child is a run of its own, for which the parent run waits (`PartOf`, in its request). Outside of a cluster
everything is executed in one place.
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
    """Labels that a worker must have to execute a child run."""

    needs: Annotated[tuple[str, ...], Meta(description="Labels that the worker must have (`--has`).")]


Place: TypeAlias = Literal["here", "anywhere"] | Needs
PLACE = Meta(
    description="In a cluster, the worker that executes it: that of its run (here), any (anywhere), or one with labels "
    "(needs)."
)


def needs_of(place: Place | None) -> tuple[str, ...] | None:
    """Return the labels that a worker must have to execute a remote child; None for `here`."""
    if isinstance(place, Needs):
        return place.needs
    return () if place == ANYWHERE else None


class Branch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Item of a map, with the branch that is executed for it.

    Attributes:
        node: the map node.
        item: the item.
        index: number of the item, from 0.
        state: state of the graph.
    """

    node: str
    item: Any
    index: int
    state: dict[str, Any]


class PartOf(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Data of the parent run in the request of a remote child.

    Attributes:
        run: id of the parent run.
        depth: number of agents above it.
        max_depth: maximum of nested agents.
        denied: permissions that the agents above it deny to all their descendants.
        held: sandbox rules in the files of the agents above it.
        untrusted, private: initial labels; see `labels`.
        branch: part of a graph to execute; None for all.
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
    """Final labels of a remote child; see `labels`."""

    untrusted: tuple[str, ...] = ()
    private: tuple[str, ...] = ()
