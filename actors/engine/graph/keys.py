"""Which state keys a node reads and writes, as far as its declaration tells."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from ....protocol.graph.model import (
    AgentNode,
    AnyNode,
    ApprovalNode,
    EndNode,
    Graph,
    InputNode,
    LlmNode,
    MapNode,
    RagNode,
    Raw,
    ScriptNode,
)
from ....protocol.tree import Path
from .templates import compile_template, root_of

SCOPED = frozenset({"output", "choice", "input"})
"""Names that exist only while a node's `state_updates` are rendered."""


class Read(msgspec.Struct, frozen=True):
    """A template in a node.

    Attributes:
        text: the template.
        path: where it stands in the file.
        update: whether it is a value of `state_updates`, where the scoped names exist.
    """

    text: str
    path: Path
    update: bool = False

    def roots(self) -> list[str]:
        """The state keys it reads, scoped names left out where they exist."""
        keys = dict.fromkeys(root_of(path) for path in compile_template(self.text).paths)
        return [key for key in keys if not (self.update and key in SCOPED)]


def reads(node: AnyNode) -> Iterator[Read]:
    """Every template of a node."""
    base: Path = ("nodes", node.id)
    for name, text in _templated(node):
        yield Read(text, (*base, *name))
    for key, update in node.updates.items():
        text = update.raw if isinstance(update, Raw) else update
        yield Read(text, (*base, "state_updates", key), update=True)


_TEMPLATED: dict[type[AnyNode], tuple[str, ...]] = {
    LlmNode: ("prompt", "instructions"),
    AgentNode: ("prompt", "inputs"),
    ApprovalNode: ("question",),
    InputNode: ("question", "default"),
    RagNode: ("query",),
    MapNode: ("over", "max_concurrency"),
    EndNode: ("output",),
}
"""Of each type of node, the keys that are templates, or hold templates by name."""


def _templated(node: AnyNode) -> Iterator[tuple[Path, str]]:
    for name in _TEMPLATED.get(type(node), ()):
        value = getattr(node, name)
        if isinstance(value, Mapping):
            yield from (((name, key), text) for key, text in value.items())
        elif isinstance(value, str):
            yield (name,), value


def declared_writes(node: AnyNode) -> list[str]:
    """The keys of `state_updates` and of `output_schema.properties`, each once: what Loki's validator looks at.

    What a script prints is known to nobody but the script.
    """
    keys = dict.fromkeys(node.updates)
    if isinstance(node, LlmNode | AgentNode) and node.output_schema is not None:
        properties = node.output_schema.get("properties")
        if isinstance(properties, dict):
            keys.update(dict.fromkeys(properties))
    return list(keys)


def known_keys(graph: Graph) -> set[str]:
    """Every state key that the file mentions as written, seeded or handed to a branch."""
    keys = {"initial_prompt", *graph.initial_state, *graph.reducers}
    for node in graph.nodes.values():
        if node.on_error == "collect":
            keys.add("errors")
        keys.update(declared_writes(node))
        if isinstance(node, MapNode):
            keys.update((node.as_, node.collect_into, node.output_key))
    return keys


def writes_anything(graph: Graph) -> bool:
    """Whether keys that the file does not mention may appear at run time."""
    return any(
        isinstance(node, ScriptNode)
        or (isinstance(node, LlmNode | AgentNode) and node.output_schema and not node.output_schema.get("properties"))
        for node in graph.nodes.values()
    )
