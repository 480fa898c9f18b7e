"""State keys that templates read and that nothing can write: mostly a slip of the pen, which would render as nothing.

What the file declares is known: `initial_state`, `reducers`, `state_updates`, the properties of schemas, the keys of
maps. Two things write keys that the file does not name, and where there is one of them only a near miss of a known key
is told:

- scripts. What they print shows at run time; but a script that prints a key mostly has its name in its text, or in the
  text of a helper beside it. A key that one of these texts holds is not told.
- models and agents with an `output_schema` that lists no properties.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache, partial
from pathlib import Path as FilePath

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
from ....protocol.problems import slip_of, suggestion
from ....protocol.tree import Path
from ...io.stamps import look
from .findings import WRITING, Findings, Surroundings
from .templates import compile_template, root_of

SCOPED = frozenset({"output", "choice", "input"})
"""Names that exist only while a node's `state_updates` are rendered."""

_SPACED = re.compile(r"\{\{(?=[^{}]*\s)\s*([a-zA-Z0-9_.\[\]]+)\s*\}\}")
_WORD = re.compile(r"[A-Za-z0-9_]+")
_ENDINGS = (".sh", ".py", ".ts", ".js", ".mjs")
_MOST_FILES, _MOST_CHARACTERS = 200, 1_000_000
"""Files beside a script that are looked at, and characters of one of them."""


def check_keys(found: Findings, around: Surroundings) -> None:
    """Every template of every node."""
    graph = found.graph
    known = known_keys(graph)
    closed = found.readable(WRITING) and not writes_anything(graph)
    words = cache(partial(_words_of_scripts, graph, around.directory))  # read when a key is first looked for
    names = sorted(known)
    items = {node.as_ for node in graph.nodes.values() if isinstance(node, MapNode)}
    told: dict[str, str | None] = {}
    for node in graph.nodes.values():
        for read in reads(node):
            if "{{" not in read.text or not found.sound(read.path):
                continue
            for key in read.roots():
                if key in known or found.is_full("warning") or (key in SCOPED and found.compat.scoped_names_stay_null):
                    continue
                if key not in told:
                    # `over: "{{parts}}"` with `as: part` is how maps are written, no slip of the pen
                    one = key.removesuffix("s")
                    told[key] = slip_of(key, [name for name in names if name != one] if one in items else names)
                near = told[key]
                if (near or closed) and key not in words():
                    found.warning(
                        "unknown_key_read",
                        f"'{key}' in the template is written by no node and not in `initial_state`",
                        read.path,
                        expected="a state key that exists by then",
                        hint=_how_to_have(key, near, graph),
                    )
            _check_spaces(found, read.text, read.path, known)


def _words_of_scripts(graph: Graph, directory: FilePath | None) -> frozenset[str]:
    """Every word in the scripts of a graph, and in the files beside them."""
    words: set[str] = set()
    if directory is None:
        return frozenset()
    scripts = [node.script for node in graph.nodes.values() if isinstance(node, ScriptNode)]
    left = _MOST_FILES
    for place in dict.fromkeys((directory / script).parent for script in scripts):
        files: list[FilePath] = []
        with suppress(OSError):  # a script that is not there is a problem of its own
            files = sorted(file for file in look(place).iterdir() if file.suffix in _ENDINGS)[:left]
        left -= len(files)
        for file in files:
            with suppress(OSError), look(file).open(encoding="utf-8", errors="replace") as opened:
                words.update(_WORD.findall(opened.read(_MOST_CHARACTERS)))
    return frozenset(words)


def _how_to_have(key: str, near: str | None, graph: Graph) -> str:
    if near:
        return suggestion(near)
    seed = f"`initial_state: {{{key}: ''}}`."
    if any(variable.name == key for variable in graph.variables):
        return f"variables reach scripts only: let a script write it into the state, or seed it: {seed}"
    return f"seed it: {seed}"


def _check_spaces(found: Findings, text: str, path: Path, known: Iterable[str]) -> None:
    for token in _SPACED.finditer(text):
        if root_of(token.group(1)) in known:
            found.warning(
                "template_spaces",
                f"'{token.group(0)}' is no template because of its spaces, and stays as it is",
                path,
                expected="{{" + token.group(1) + "}}",
                hint="remove the spaces between the braces.",
            )


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
    EndNode: ("output", "error"),
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
