"""The check of a graph's text, as tests ask for it."""

from __future__ import annotations

from callboard.actors.engine.graph.compat import Compat
from callboard.actors.engine.graph.findings import CheckContext
from callboard.actors.engine.graph.validate import check_draft
from callboard.protocol.graph import Graph
from callboard.protocol.problems import Problem, errors_in


def check_text(
    text: str, file: str, around: CheckContext | None = None, *, compat: Compat | None = None, strict: bool = False
) -> tuple[Graph | None, list[Problem]]:
    """The graph, None where there is any error, and all problems."""
    graph, problems = check_draft(text, file, around, compat=compat, strict=strict)
    return (None if errors_in(problems) else graph), problems
