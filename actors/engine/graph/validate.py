"""Validation of a graph: all problems that Loki's validator finds, and more, reported together.

`check_draft` reads and checks a file in one pass. Errors mean that the run would fail; warnings are probable
mistakes. Decisions of a script at run time (`_next`, the keys it prints) are unknown here, unless its node declares
`routes`.

`node_checks` checks single nodes, `parallel_checks` fan-outs and maps. This module checks the graph as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from ....protocol.graph import ApprovalNode, Draft, EndNode, FunctionNode, Graph, draft_graph
from ....protocol.problems import Problem, did_you_mean, errors_in
from ....protocol.reading import in_file_order
from .compat import MODES, Compat
from .edges import all_branch_nodes, edges, edges_of, find_cycles, reachable
from .findings import LEADING, CheckContext, Findings, listed
from .node_checks import check_nodes
from .parallel_checks import check_parallel

MOST_CYCLES = 100
LONGEST_CYCLE = 100
"""Most cycles that are reported per file, and most nodes that are named per cycle."""


def check_draft(
    text: str,
    file: str,
    around: CheckContext | None = None,
    *,
    compat: Compat | None = None,
    strict: bool = False,
) -> tuple[Graph | None, list[Problem]]:
    """Read and check a `graph.yaml`; return the readable part of the graph (or None), and all problems.

    Args:
        file: name of the text in problems.
        around: the environment of the graph; None checks the text alone.
        compat: overrides the file's `settings.compat`.
        strict: every warning is an error.
    """
    draft, problems = draft_graph(text, file)
    if draft is None:
        return None, in_file_order(problems, strict=strict)
    return draft.graph, in_file_order([*problems, *_check(draft, around, compat)], strict=strict)


def check_graph(graph: Graph) -> list[Problem]:
    """Return all problems of a graph that a program has built, as far as the graph alone shows them."""
    return _check(Draft(graph), None, None)


def failure_text(problems: Iterable[Problem]) -> str:
    """Return the errors as one message: a headline with their number, and a line or two for each."""
    errors = errors_in(problems)
    lines = [f"Graph validation failed with {len(errors)} error(s):"]
    lines += [f"  {line}" for problem in errors for line in str(problem).splitlines()]
    return "\n".join(lines)


def _check(draft: Draft, around: CheckContext | None, compat: Compat | None) -> list[Problem]:
    found = Findings(draft.graph, compat or MODES[draft.graph.settings.compat], draft.unread, draft.broken)
    limit = draft.graph.settings.max_concurrency
    found.check_concurrency(limit, ("settings", "max_concurrency"), "the default of 8")
    _check_targets(found)
    _check_cycles(found)
    check_nodes(found, around)
    check_parallel(found)
    # With unreadable edges these checks would report nodes as unreachable that are not.
    if found.readable(LEADING):
        _check_ends(found)
        _check_reach(found)
    return found.problems


def _check_targets(found: Findings) -> None:
    # Nodes that could not be read exist, so edges to them are no mistakes.
    known = {**dict.fromkeys(found.graph.nodes), **dict.fromkeys(sorted(found.unread))}
    for edge in edges(found.graph):
        if edge.target in known or not edge.target or found.is_full("error"):
            continue
        kind = found.graph.nodes[edge.source].kind
        key = "'next'" if edge.via == "next" else f"{kind} '{edge.via}'"
        found.error(
            "missing_node",
            f"References non-existent node '{edge.target}' in {key}",
            edge.path,
            expected="the id of a node",
            hint=did_you_mean(edge.target, known) or f"the nodes are {listed(known)}.",
        )


def _check_cycles(found: Findings) -> None:
    for cycle in islice(find_cycles(found.graph), MOST_CYCLES):
        last = edges_of(found.graph.nodes[cycle[-2]])
        closing = next(edge for edge in last if edge.target == cycle[-1] and not edge.dynamic)
        half = LONGEST_CYCLE // 2
        told = cycle if len(cycle) <= LONGEST_CYCLE else [*cycle[:half], "...", *cycle[-half:]]
        found.error(
            "cycle",
            f"Cycle detected: {' -> '.join(told)}",
            closing.path,
            expected="declared edges that never lead back",
            hint="loop by a script: let it print `_next` and name the way back in its `routes`.",
        )


def _check_ends(found: Findings) -> None:
    if not any(isinstance(node, EndNode) for node in found.graph.nodes.values()):
        found.error(
            "no_end",
            "Graph has no end nodes; execution would never terminate",
            ("nodes",),
            expected="at least one node of type end",
            hint='add `done: {type: end, output: "..."}` and lead to it.',
        )


def _check_reach(found: Findings) -> None:
    graph = found.graph
    if graph.start not in graph.nodes:
        return
    seen = reachable(graph, graph.start)
    _check_exits(found, seen)
    if any(problem.code == "missing_node" for problem in found.problems):
        return  # the target of that edge is unknown, so reachability is too
    for node_id in graph.nodes:
        if node_id not in seen:
            found.warning(
                "unreachable",
                f"Node '{node_id}' is unreachable from start node '{graph.start}' "
                "(script `_next` routing is not analyzed)",
                ("nodes", node_id),
                hint=f"if a script's `_next` leads here, declare it on the script: `routes: [{node_id}]`.",
            )
    ends = [node_id for node_id, node in graph.nodes.items() if isinstance(node, EndNode)]
    if ends and not seen.intersection(ends):
        found.warning(
            "no_reachable_end",
            f"No end node is reachable from start node '{graph.start}' (script `_next` routing is not analyzed)",
            ("start",),
            hint=f"lead to {' or '.join(ends)} by `next`, or declare a script's `routes`.",
        )


def _check_exits(found: Findings, seen: set[str]) -> None:
    """Report nodes without targets, which would fail only when the run reaches them."""
    graph = found.graph
    in_branches = all_branch_nodes(graph)
    for node_id, node in graph.nodes.items():
        if node_id not in seen or node_id in in_branches:
            continue
        if isinstance(node, EndNode | ApprovalNode) or node.targets:
            continue
        if node.next is not None:
            found.warning(
                "no_exit",
                f"`next: []` leads nowhere, so the lane of '{node_id}' ends here without a result",
                ("nodes", node_id, "next"),
                expected="the id of a node",
                hint="name the node that follows.",
            )
        elif node.kind != "script" and not (isinstance(node, FunctionNode) and node.routes):
            found.beyond(
                "no_exit",
                f"{node.kind} node '{node_id}' has no `next` and is not an end node",
                ("nodes", node_id),
                expected="next: the id of a node",
                hint=f"add `next:` with one of {listed(other for other in graph.nodes if other != node_id)}."
                if not found.is_full("error")
                else None,
            )
