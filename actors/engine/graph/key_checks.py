"""Check for state keys that templates read and nothing writes: mostly typing errors, which would render as nothing.

The file declares most keys: `initial_state`, `reducers`, `state_updates`, properties of schemas, keys of maps. Two
kinds of nodes write keys that the file does not name. If the graph has one of them, only a near miss of a known key
is reported:

- scripts. Their output is known only at run time. But a script that prints a key mostly contains its name, or a helper
  in the same directory does. A key that occurs in one of these files is not reported.
- models and agents with an `output_schema` without properties.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache, partial
from pathlib import Path as FilePath

import msgspec

from ....protocol.graph import (
    AgentNode,
    AnyNode,
    ApprovalNode,
    EndNode,
    FunctionNode,
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
from ...io.file_fingerprints import record_read
from .findings import WRITING, CheckContext, Findings
from .templates import LETTER, compile_template, root_of

SCOPED = frozenset({"output", "choice", "input"})
"""Names that exist only while a node's `state_updates` are rendered."""

_SPACED = re.compile(rf"\{{\{{(?=[^{{}}]*\s)\s*((?:(?!\s)[{LETTER}.\[\]-])+)\s*\}}\}}")
_WORD = re.compile(r"[A-Za-z0-9_]+")
_NAME = re.compile(rf"[{LETTER}][{LETTER}-]*")
_ENDINGS = (".sh", ".py", ".ts", ".js", ".mjs")
_MOST_FILES, _MOST_CHARACTERS = 200, 1_000_000
"""Most files that are read next to scripts, and most characters of each."""


def check_keys(found: Findings, around: CheckContext) -> None:
    """Check every template of every node."""
    graph = found.graph
    known = known_keys(graph)
    # Every writer declares its keys, so any unknown key is a mistake, not only a near miss.
    closed = found.readable(WRITING) and not writes_anything(graph)
    # lazy: the files are read at the first unknown key
    words = cache(partial(_words_of_scripts, graph, around.directory))
    names = sorted(known)
    items = {node.as_ for node in graph.nodes.values() if isinstance(node, MapNode)}
    told: dict[str, str | None] = {}
    for node in graph.nodes.values():
        for read in reads(node):
            # Saves compiling texts without templates.
            if "{{" not in read.text or not found.sound(read.path):
                continue
            for key in read.roots():
                if key in known or found.is_full("warning") or (key in SCOPED and found.compat.scoped_names_stay_null):
                    continue
                if key not in told:
                    # `over: "{{parts}}"` with `as: part` is the usual spelling of a map, not a typing error
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
    """Return every word in the scripts of a graph and in the files next to them."""
    words: set[str] = set()
    if directory is None:
        return frozenset()
    scripts = [node.script for node in graph.nodes.values() if isinstance(node, ScriptNode)]
    left = _MOST_FILES
    for place in dict.fromkeys((directory / script).parent for script in scripts):
        files: list[FilePath] = []
        with suppress(OSError):  # a missing script is reported by another check
            files = sorted(file for file in record_read(place).iterdir() if file.suffix in _ENDINGS)[:left]
        left -= len(files)
        for file in files:
            with suppress(OSError), record_read(file).open(encoding="utf-8", errors="replace") as opened:
                text = opened.read(_MOST_CHARACTERS)
                words.update(_WORD.findall(text))
                words.update(_NAME.findall(text))
    return frozenset(words)


def _how_to_have(key: str, near: str | None, graph: Graph) -> str:
    if near:
        return suggestion(near)
    seed = f"`initial_state: {{{key}: ''}}`."
    if any(variable.name == key for variable in graph.variables):
        return f"variables reach scripts only: let a script write it into the state, or seed it: {seed}"
    return f"seed it: {seed}"


_FILTERED = re.compile(rf"\{{\{{\s*((?!\s)[{LETTER}][{LETTER}.\[\]-]*)\s*[|(+*/?:][^{{}}]*\}}\}}")
_EXPRESSION = re.compile(rf"\{{\{{\s*((?!\s)[{LETTER}][{LETTER}.\[\]]*)(?:\s+\S|[^\s{LETTER}.\[\]{{}}-])[^{{}}]*\}}\}}")
"""Tokens that begin with a known key but are not paths: `{{a == 'b'}}`, `{{a - 1}}`, `{{a, b}}`."""


def _check_spaces(found: Findings, text: str, path: Path, known: Iterable[str]) -> None:
    for token in _FILTERED.finditer(text):
        if root_of(token.group(1)) in known and not found.is_full("error"):
            found.beyond(
                "template_filter",
                f"'{token.group(0)}' is no template, and stays as it is: there are no filters and no expressions",
                path,
                expected="{{" + token.group(1) + "}}",
                hint="let a script node before this one write what is wanted into the state.",
            )
    for token in _EXPRESSION.finditer(text):
        if root_of(token.group(1)) in known and not _FILTERED.match(token.group(0)):
            found.warning(
                "template_expression",
                f"'{token.group(0)}' is no template, and stays as it is: there are no expressions",
                path,
                expected="{{" + token.group(1) + "}}",
                hint="let a script node before this one write what is wanted into the state.",
            )
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
    """Template in a node.

    Attributes:
        text: the template.
        path: its position in the file.
        update: True for a value of `state_updates`, where the scoped names exist.
    """

    text: str
    path: Path
    update: bool = False

    def roots(self) -> list[str]:
        """Return the state keys that it reads, without scoped names where these exist."""
        keys = dict.fromkeys(root_of(path) for path in compile_template(self.text).paths)
        return [key for key in keys if not (self.update and key in SCOPED)]


def reads(node: AnyNode) -> Iterator[Read]:
    """Yield every template of a node."""
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
"""Template keys by type of node; a key can also hold a mapping of templates."""


def _templated(node: AnyNode) -> Iterator[tuple[Path, str]]:
    for name in _TEMPLATED.get(type(node), ()):
        value = getattr(node, name)
        if isinstance(value, Mapping):
            yield from (((name, key), text) for key, text in value.items())
        elif isinstance(value, str):
            yield (name,), value


def declared_writes(node: AnyNode) -> list[str]:
    """Return the keys of `state_updates` and of `output_schema.properties`, without duplicates, as Loki's validator
    does.

    The keys that a script prints are not known here.
    """
    keys = dict.fromkeys(node.updates)
    if isinstance(node, LlmNode | AgentNode) and node.output_schema is not None:
        properties = node.output_schema.get("properties")
        if isinstance(properties, dict):
            keys.update(dict.fromkeys(properties))
    return list(keys)


def known_keys(graph: Graph) -> set[str]:
    """Return every state key that the file declares as written, seeded or passed to a branch."""
    keys = {"initial_prompt", *graph.initial_state, *graph.reducers}
    for node in graph.nodes.values():
        if node.on_error == "collect":
            keys.add("errors")
        keys.update(declared_writes(node))
        if isinstance(node, MapNode):
            keys.update((node.as_, node.collect_into, node.output_key))
    return keys


def writes_anything(graph: Graph) -> bool:
    """Return True if keys that the file does not declare can appear at run time."""
    return any(
        (isinstance(node, ScriptNode) and not (isinstance(node, FunctionNode) and node.updates))
        or (isinstance(node, LlmNode | AgentNode) and node.output_schema and not node.output_schema.get("properties"))
        for node in graph.nodes.values()
    )
