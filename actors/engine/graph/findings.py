"""Shared state of the graph checks: the graph, its environment, and the list of problems.

Separate from `validate`: modules that find and load targets need the types here at every start, but not the checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partialmethod
from pathlib import Path as FilePath
from typing import Literal, Protocol, TypeAlias

import msgspec

from ....protocol.graph import Graph
from ....protocol.problems import Problem, Severity
from ....protocol.reading import node_of
from ....protocol.tree import Path
from ...io.file_fingerprints import record_read
from ...work.tools.registry import AICHAT_FILE
from .compat import Compat

AgentSeen: TypeAlias = Literal["found", "missing", "empty", "both"]
"""Result of a lookup by agent name: an agent, nothing, a directory without an agent file, or one with both files."""


class ServersSeen(Protocol):
    """Configured MCP servers, as the checks need them."""

    def spelled_out(self, names: Iterable[str]) -> list[str]:
        """Return the names with aliases and `all` replaced by the servers that they mean."""
        ...

    def missing(self, name: str) -> str | None:
        """Return a hint that repairs the missing server, or None if it exists."""
        ...

    def broken(self, name: str) -> str | None:
        """Return the reason why its entry is unusable, or None."""
        ...

    def behind(self, tool: str) -> str | None:
        """Return the server or alias that an unknown tool name is or belongs to, or None."""
        ...


class CheckContext(msgspec.Struct, frozen=True, kw_only=True):
    """Known environment of a graph. A check that needs a field of value None is skipped.

    Attributes:
        directory: the agent's own directory, with its scripts and `tools.*` file.
        agents: looks up an agent name; see `agents_in`.
        models: returns a hint that repairs an unknown model id, or None if the model is known.
        own_tools: names of the agent's own tools.
        spelled_out: returns tool names without file endings and with aliases resolved.
        servers: the configured MCP servers.
    """

    directory: FilePath | None = None
    agents: Callable[[str], AgentSeen] | None = None
    models: Callable[[str], str | None] | None = None
    own_tools: Sequence[str] = ()
    spelled_out: Callable[[Iterable[str]], list[str]] | None = None
    servers: ServersSeen | None = None


def agents_in(directory: FilePath) -> Callable[[str], AgentSeen]:
    """Return a lookup of agent names: `directory/NAME` is an agent if it has an agent file."""

    def seen(name: str) -> AgentSeen:
        home = directory / name
        if not record_read(home).is_dir():
            return "missing"
        files = [record_read(home / file).is_file() for file in ("config.yaml", "graph.yaml")]
        return "both" if all(files) else "found" if any(files) or record_read(home / AICHAT_FILE).is_file() else "empty"

    return seen


LEADING = frozenset({"type", "next", "fallback", "routes", "options", "on_other", "on_timeout", "branch"})
"""Keys of a node on which its edges depend."""

WRITING = frozenset({"type", "state_updates", "output_schema", "on_error", "as", "collect_into", "output_key"})
"""Keys of a node on which the state keys that it writes depend."""

MOST_PROBLEMS = 500
"""Most errors, and most warnings, per file. Users do not read more, so more are not computed."""

MOST_NAMED = 20
"""Most names in a hint."""


def listed(names: Iterable[str]) -> str:
    """Return names for a hint, shortened if there are many."""
    names = list(names)
    text = ", ".join(names[:MOST_NAMED])
    return text if len(names) <= MOST_NAMED else f"{text} and {len(names) - MOST_NAMED:,} more"


class Findings:
    """Collector of the problems of one graph.

    A problem at or below a value that could not be read (`broken`) is dropped, because it would only repeat the
    first one.
    """

    def __init__(
        self, graph: Graph, compat: Compat, unread: frozenset[str] = frozenset(), broken: frozenset[Path] = frozenset()
    ) -> None:
        self.graph = graph
        self.compat = compat
        self.unread = unread
        self.broken = broken
        self.problems: list[Problem] = []
        # All ancestors of unreadable values: a mapping with an unreadable member is not sound either.
        self._above = {path[:depth] for path in broken for depth in range(len(path))}
        self._left: dict[Severity, int] = {"error": MOST_PROBLEMS, "warning": MOST_PROBLEMS}

    def is_full(self, severity: Severity) -> bool:
        """Return True if the file has reached the limit of problems of that severity; `add` drops further ones."""
        return self._left[severity] <= 0

    def readable(self, keys: frozenset[str]) -> bool:
        """Return True if these keys of every node could be read; errors in other keys do not matter."""
        return not self.unread and not any(
            path[:1] == ("nodes",) and (len(path) < 3 or path[2] in keys) for path in self.broken
        )

    def sound(self, *paths: Path) -> bool:
        """Return True if the values at these paths could be read in full."""
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
        """Add a problem, unless its value could not be read or the limit of its severity is reached.

        Args:
            severity: `error` if Loki's validator rejects the file too; `warning` if the run continues. `beyond` is for
                a certain failure that Loki's validator does not report: an error, or a warning under `loki`.
            path: position in the file.
        """
        if severity == "beyond":
            severity = "warning" if self.compat.extra_checks_only_warn else "error"
        if self.is_full(severity) or not self.sound(path):
            return
        self._left[severity] -= 1
        if self.is_full(severity):
            message += f" (and there are more {severity}s than the {MOST_PROBLEMS} that are listed)"
        self.problems.append(
            self.graph.source.problem(
                severity,
                code,
                message,
                path,
                # A problem of a whole node points to its id.
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
        """Report a numeric `max_concurrency` below 1, with which nothing could run; templates are ignored.

        Args:
            otherwise: what applies without the key, for the hint.
        """
        if isinstance(limit, int) and limit < 1:
            self.error(
                "bad_concurrency",
                f"{'settings.' if path[0] == 'settings' else ''}max_concurrency must be >= 1 (got {limit}); "
                "a zero cap would deadlock the executor",
                path,
                expected="a whole number of at least 1",
                hint=f"leave it out for {otherwise}.",
            )
