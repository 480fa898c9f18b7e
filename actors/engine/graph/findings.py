"""What the checks of a graph share: the graph, what is known around it, and the list of what they found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partialmethod
from pathlib import Path as FilePath
from typing import Literal, Protocol, TypeAlias

import msgspec

from ....protocol.graph.model import Graph
from ....protocol.problems import Problem, Severity
from ....protocol.reading import node_of
from ....protocol.tree import Path
from ...io.stamps import look
from ...work.agent.aichat import INDEX
from .compat import Compat

AgentSeen: TypeAlias = Literal["found", "missing", "empty", "both"]
"""What stands at an agent's name: an agent, nothing, a directory without an agent file, or one with both."""


class ServersSeen(Protocol):
    """The MCP servers that are configured."""

    def spelled_out(self, names: Iterable[str]) -> list[str]:
        """Aliases, and `all`, replaced by the servers they stand for."""
        ...

    def missing(self, name: str) -> str | None:
        """How to mend it that there is no such server; None if there is."""
        ...

    def broken(self, name: str) -> str | None:
        """Why its entry can't be used; None if it can."""
        ...

    def behind(self, tool: str) -> str | None:
        """The server, or alias, that the name of an unknown tool is, or whose tool it is; None if it is of none."""
        ...


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What is known around a graph. Whatever is None is not checked.

    Attributes:
        directory: the agent's own directory, with its scripts and `tools.*` file.
        agents: says what stands at an agent's name; see `agents_in`.
        models: how to mend it that a model id means no model; None if it means one.
        own_tools: names of the agent's own tools.
        spelled_out: tool names without endings, aliases replaced by what they stand for.
        servers: the MCP servers that are configured.
    """

    directory: FilePath | None = None
    agents: Callable[[str], AgentSeen] | None = None
    models: Callable[[str], str | None] | None = None
    own_tools: Sequence[str] = ()
    spelled_out: Callable[[Iterable[str]], list[str]] | None = None
    servers: ServersSeen | None = None


def agents_in(directory: FilePath) -> Callable[[str], AgentSeen]:
    """Looks for agents in the subdirectories of `directory`."""

    def seen(name: str) -> AgentSeen:
        home = directory / name
        if not look(home).is_dir():
            return "missing"
        files = [look(home / file).is_file() for file in ("config.yaml", "graph.yaml")]
        return "both" if all(files) else "found" if any(files) or look(home / INDEX).is_file() else "empty"

    return seen


LEADING = frozenset({"type", "next", "fallback", "routes", "options", "on_other", "on_timeout", "branch"})
"""Keys that say where a node leads."""

WRITING = frozenset({"type", "state_updates", "output_schema", "on_error", "as", "collect_into", "output_key"})
"""Keys that say what a node writes."""

MOST_TOLD = 500
"""Errors, and warnings, that the checks list of one file. What a person can't read need not be computed."""

MOST_NAMED = 20
"""Names that a hint lists."""


def listed(names: Iterable[str]) -> str:
    """Names for a hint, not all of them if there are many."""
    names = list(names)
    text = ", ".join(names[:MOST_NAMED])
    return text if len(names) <= MOST_NAMED else f"{text} and {len(names) - MOST_NAMED:,} more"


class Findings:
    """The problems found so far.

    A problem about a value that could not even be read (`broken`) is not added: it would only echo the first.
    """

    def __init__(
        self, graph: Graph, compat: Compat, unread: frozenset[str] = frozenset(), broken: frozenset[Path] = frozenset()
    ) -> None:
        self.graph = graph
        self.compat = compat
        self.unread = unread
        self.broken = broken
        self.problems: list[Problem] = []
        self._above = {path[:depth] for path in broken for depth in range(len(path))}
        self._left: dict[Severity, int] = {"error": MOST_TOLD, "warning": MOST_TOLD}

    def is_full(self, severity: Severity) -> bool:
        """Whether as many problems of that severity are told as one file may have; further ones are left out."""
        return self._left[severity] <= 0

    def readable(self, keys: frozenset[str]) -> bool:
        """Whether every node could be read, as far as these of its keys go; an error elsewhere hides nothing."""
        return not self.unread and not any(
            path[:1] == ("nodes",) and (len(path) < 3 or path[2] in keys) for path in self.broken
        )

    def sound(self, *paths: Path) -> bool:
        """Whether the values at these paths could be read in full."""
        return not any(
            path in self._above or any(path[:depth] in self.broken for depth in range(len(path) + 1)) for path in paths
        )

    def add(
        self,
        severity: Severity | Literal["beyond"],
        code: str,
        message: str,
        path: Path,
        *,
        expected: str | None = None,
        hint: str | None = None,
    ) -> None:
        """One more problem.

        Args:
            severity: an `error` is one that Loki's validator stops at too, a `warning` is worth knowing while the run
                goes on. What lies `beyond` Loki's validator and is certain to fail is only a warning under `loki`.
            path: where it is in the file.
        """
        if severity == "beyond":
            severity = "warning" if self.compat.extra_checks_only_warn else "error"
        if self.is_full(severity) or not self.sound(path):
            return
        self._left[severity] -= 1
        if self.is_full(severity):
            message += f" (and there are more {severity}s than the {MOST_TOLD} that are listed)"
        self.problems.append(
            self.graph.source.problem(
                severity,
                code,
                message,
                path,
                at_key=len(path) == 2 and path[0] == "nodes",
                node=node_of(path),
                expected=expected,
                hint=hint,
            )
        )

    error = partialmethod(add, "error")
    warning = partialmethod(add, "warning")
    beyond = partialmethod(add, "beyond")

    def check_concurrency(self, limit: object, path: Path, otherwise: str) -> None:
        """A limit of none would let nothing run."""
        if isinstance(limit, int) and limit < 1:
            self.error(
                "bad_concurrency",
                f"{'settings.' if path[0] == 'settings' else ''}max_concurrency must be >= 1 (got {limit}); "
                "a zero cap would deadlock the executor",
                path,
                expected="a whole number of at least 1",
                hint=f"leave it out for {otherwise}.",
            )
