"""The text of a file that was read: `Source` keeps it, so a later error can still name the line.

The module `yaml_tree` describes how YAML becomes a tree and which constructs it refuses. The module `tree` defines
the nodes of the tree.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Unpack

import msgspec

from .problems import Problem, Remedy, Severity
from .tree import Mapping, Node, Path, Sequence, describe, dotted
from .yaml_tree import parse


class Source(msgspec.Struct, frozen=True):
    """Text of the file from which a struct was read, kept so that a later error can name the line.

    Only the text is kept, so a file without errors costs nothing. To find a position, the text is parsed again.
    """

    file: str = ""
    text: str = ""

    def where(self, path: Path, *, key: bool = False) -> tuple[int, int]:
        """Return line and column of the value at `path` (with `key`: of its key), or of the nearest parent that exists.

        The result is (0, 0) when there is no text.
        """
        node = _parsed(self.text)
        if node is None:
            return 0, 0
        place = (node.line, node.column)
        for depth, step in enumerate(path):
            if isinstance(node, Mapping) and step in node.entries:
                entry = node.entries[str(step)]
                node = entry.value
                last = depth == len(path) - 1
                place = (entry.line, entry.column) if key and last else (node.line, node.column)
            elif isinstance(node, Sequence) and isinstance(step, int) and step < len(node.items):
                node = node.items[step]
                place = (node.line, node.column)
            else:
                break
        return place

    def problem(
        self,
        severity: Severity,
        code: str,
        message: str,
        path: Path = (),
        *,
        at_key: bool = False,
        node: str | None = None,
        **remedy: Unpack[Remedy],
    ) -> Problem:
        """Return a `Problem` about the value at `path` (with `at_key`: about its key)."""
        line, column = self.where(path, key=at_key)
        return Problem(
            severity=severity,
            file=self.file,
            line=line,
            column=column,
            code=code,
            message=message,
            node=node,
            key=dotted(path) or None,
            **remedy,
        )


def parse_mapping(text: str, file: str) -> tuple[Mapping | None, list[Problem]]:
    """Parse a file that must have a mapping at its top level."""
    node, problems = parse(text, file)
    if node is None or isinstance(node, Mapping):
        return node, problems
    problem = Problem(
        severity="error",
        file=file,
        line=node.line,
        column=node.column,
        code="not_a_mapping",
        message=f"YAML parsing error: the file holds {describe(node)}, not `key: value` lines",
        expected="a mapping at the top level",
        hint="Hint: the file should start with lines such as `name: my-agent`.",
    )
    return None, [*problems, problem]


@lru_cache(maxsize=8)
def _parsed(text: str) -> Node | None:
    return parse(text, "")[0] if text else None
