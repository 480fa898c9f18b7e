"""The text that something was read from: `Source` keeps it, so that a later error can still say where.

How YAML becomes a tree, and what is refused on the way, stands in `yaml_tree`; what it consists of, in `tree`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Unpack

import msgspec

from .problems import Problem, Remedy, Severity
from .tree import Mapping, Node, Path, Sequence, describe, dotted
from .yaml_tree import parse


class Source(msgspec.Struct, frozen=True):
    """The text a struct was read from, so that a later error can still say where.

    It keeps the text alone, which costs nothing while all goes well; a place is found by parsing once more.
    """

    file: str = ""
    text: str = ""

    def where(self, path: Path, *, key: bool = False) -> tuple[int, int]:
        """Line and column of the value at `path` (`key`: of its key), or of the nearest parent that exists.

        (0, 0) when there is no text.
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
        """A `Problem` about the value at `path` (`at_key`: about its key)."""
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
    """Like `parse`, for files whose top level has to be a mapping."""
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
