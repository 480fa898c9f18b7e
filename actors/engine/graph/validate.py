"""Validation of a graph: all problems that Loki's validator finds, and more, reported together.

`check_draft` reads and checks a file in one pass. Errors mean that the run would fail; warnings are probable
mistakes. Decisions of a script at run time (`_next`, the keys it prints) are unknown here, unless its node declares
`routes`.

This module checks the graph as a whole: targets, cycles, reachability, and parallel execution, which are fan-outs
(`next` with several nodes) and map branches. As in Loki, only the nodes that a `next` list names are compared with each
other, not the nodes after them. `node_checks` checks single nodes, `findings` collects the problems.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from ....protocol.graph import (
    AgentNode,
    AnyNode,
    ApprovalNode,
    Draft,
    EndNode,
    FunctionNode,
    Graph,
    InputNode,
    LlmNode,
    MapNode,
    ScriptNode,
    draft_graph,
)
from ....protocol.problems import Problem, did_you_mean, errors_in
from ....protocol.reading import in_file_order
from ....protocol.tree import Path
from .compat import MODES, Compat
from .edges import all_branch_nodes, branch_nodes, edges, edges_of, find_cycles, reachable
from .findings import LEADING, CheckContext, Findings, listed
from .node_checks import check_nodes, declared_writes, reads
from .templates import compile_template

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
            expected="declared edges without a cycle",
            hint="to repeat nodes, let a script print `_next`, and list the node that it returns to in its `routes`.",
        )


def _check_ends(found: Findings) -> None:
    if not any(isinstance(node, EndNode) for node in found.graph.nodes.values()):
        found.error(
            "no_end",
            "Graph has no end nodes; execution would never terminate",
            ("nodes",),
            expected="at least one node of type end",
            hint='add `done: {type: end, output: "..."}` and name it in the `next` of a node.',
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
            hint=f"name {' or '.join(ends)} in the `next` of a node, or in the `routes` of a script.",
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
                f"`next: []` names no node, so the lane of '{node_id}' ends here without a result",
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


MOST_STEPS = 500_000
"""Most steps per file that the search for meeting lanes takes."""


def check_parallel(found: Findings) -> None:
    """Check every fan-out and every map; add the problems to `found`."""
    lanes = _Lanes(found)
    for node in found.graph.nodes.values():
        members = [found.graph.nodes[target] for target in dict.fromkeys(node.targets) if target in found.graph.nodes]
        if len(members) > 1 and not isinstance(node, ApprovalNode):
            _check_members(found, node)
            _check_writes(found, node, members)
            _check_reads(found, members)
            _check_meeting(found, node, members, lanes)
        if isinstance(node, MapNode):
            _check_map(found, node)


# --- fan-outs ---------------------------------------------------------------------------------------------


def _check_members(found: Findings, source: AnyNode) -> None:
    for i, target in enumerate(source.targets):
        node = found.graph.nodes.get(target)
        path: Path = ("nodes", source.id, "next", i)
        if isinstance(node, ApprovalNode | InputNode):
            found.error(
                "question_in_fan_out",
                f"{node.kind} node '{target}' can't be a parallel branch of '{source.id}': "
                "users answer one question at a time",
                path,
                expected="a node that asks no user",
                hint="ask before the fan-out or after the join.",
            )
        elif isinstance(node, ScriptNode) and not isinstance(node, FunctionNode) and node.state_updates is None:
            if found.sound(("nodes", target, "state_updates")):
                found.error(
                    "undeclared_writes",
                    f"script node '{target}' runs as a parallel branch of '{source.id}' and declares no "
                    "`state_updates`, so the keys that it writes are unknown",
                    ("nodes", target),
                    expected="`state_updates`, which may be empty",
                    hint="add `state_updates: {}`, and reducers for keys that several branches print.",
                )
        elif isinstance(node, EndNode) and node.join != "all":
            found.warning(
                "end_in_fan_out",
                f"end node '{target}' ends the run while the other branches of '{source.id}' are still running",
                path,
                expected="`join: all` on the end node, or an end after the join",
                hint=f"add `join: all` to '{target}'.",
            )


def _check_writes(found: Findings, source: AnyNode, members: list[AnyNode]) -> None:
    writers: dict[str, list[str]] = {}
    beyond: set[str] = set()
    for node in members:
        for key in declared_writes(node):
            writers.setdefault(key, []).append(node.id)
        if isinstance(node, MapNode) and node.collect_into not in node.updates:
            writers.setdefault(node.collect_into, []).append(node.id)
            beyond.add(node.collect_into)
    for key, ids in writers.items():
        if len(ids) < 2 or key in found.graph.reducers:
            continue
        names = ", ".join(sorted(ids))
        # Loki's validator does not check `collect_into`.
        report = found.beyond if key in beyond else found.error
        report(
            "parallel_writers",
            f"nodes [{names}] all write key '{key}' in the same parallel super-step but no reducer is declared "
            f"for '{key}'. Add `reducers: {{ {key}: <reducer> }}` or rename one of them",
            ("nodes", source.id, "next"),
            expected="one writer for each key, or a reducer",
            hint=f"for example `reducers: {{{key}: append}}` collects what they write in a list.",
        )


def _check_reads(found: Findings, members: list[AnyNode]) -> None:
    written = {member.id: set(declared_writes(member)) for member in members}
    writers: dict[str, list[str]] = {}
    for node_id, keys in written.items():
        for key in keys:
            writers.setdefault(key, []).append(node_id)
    order = {member.id: place for place, member in enumerate(members)}
    for reader in members:
        own = written[reader.id]
        needed = {key: read.path for read in reads(reader) for key in read.roots() if not (read.update and key in own)}
        shared: dict[str, list[str]] = {}
        for key in sorted(needed):
            for writer in writers.get(key, ()):
                # Pairs of readers and writers grow quadratically; stop when no further error is listed.
                if found.is_full("error"):
                    return
                if writer != reader.id:
                    shared.setdefault(writer, []).append(key)
        for writer in sorted(shared, key=order.__getitem__):
            told = ", ".join(f"`{key}`" for key in shared[writer])
            found.error(
                "parallel_read",
                f"node '{reader.id}' reads state key(s) {told} which sibling parallel branch '{writer}' "
                "writes in the same super-step; it would see the value from before",
                needed[shared[writer][0]],
                expected="keys that no sibling writes",
                hint=f"run '{reader.id}' after '{writer}', or read another key.",
            )


class _Lanes:
    """Distances of the nodes after a fan-out, along each of its branches.

    Attributes:
        left: remaining steps for all fan-outs of a file. Following every lane to its end takes time quadratic in the
            number of nodes.
    """

    def __init__(self, found: Findings) -> None:
        self._nodes = found.graph.nodes
        self.left = MOST_STEPS

    def arrivals(self, members: list[AnyNode]) -> dict[str, dict[str, int]]:
        """Return for each node the branches that reach it, with the number of super-steps that each needs.

        The search ends where all lanes are at the same nodes, or when `left` is used up.
        """
        arrivals: dict[str, dict[str, int]] = {member.id: {member.id: 1} for member in members}
        lanes = {member.id: [member.id] for member in members}
        steps = 1
        while lanes and self.left > 0:
            steps += 1
            lanes = {member: ahead for member, lane in lanes.items() if (ahead := self._ahead(lane))}
            for member, lane in lanes.items():
                for node_id in lane:
                    arrivals.setdefault(node_id, {}).setdefault(member, steps)
            # All lanes are at the same nodes, so every later node is reached equally.
            if len(lanes) == len(members) and len({frozenset(lane) for lane in lanes.values()}) == 1:
                break
            lanes = {
                member: [node_id for node_id in lane if arrivals[node_id][member] == steps]
                for member, lane in lanes.items()
            }
        return arrivals

    def _ahead(self, lane: list[str]) -> list[str]:
        ahead: dict[str, None] = {}
        for node_id in lane:
            node = self._nodes[node_id]
            if not isinstance(node, ApprovalNode):
                ahead.update(dict.fromkeys(target for target in node.targets if target in self._nodes))
        self.left -= len(ahead) + 1
        return list(ahead)


def _check_meeting(found: Findings, source: AnyNode, members: list[AnyNode], lanes: _Lanes) -> None:
    """Report nodes that branches reach after different numbers of steps, and that therefore run more than once."""
    arrivals = lanes.arrivals(members)
    uneven = {node_id for node_id, steps in arrivals.items() if len(set(steps.values())) > 1}
    # Report only the first uneven node of a lane; the nodes after it are uneven as a consequence.
    behind = {target for node_id in uneven for target in found.graph.nodes[node_id].targets}
    for node_id in uneven - behind:
        node = found.graph.nodes[node_id]
        if node.join == "all":
            continue
        steps = arrivals[node_id]
        first, last = min(steps, key=steps.__getitem__), max(steps, key=steps.__getitem__)
        effect = "the run ends before the longer one does" if isinstance(node, EndNode) else "it runs more than once"
        found.warning(
            "uneven_join",
            f"the branches of '{source.id}' reach '{node_id}' after different numbers of steps "
            f"('{first}' {steps[first]}, '{last}' {steps[last]}), so {effect}",
            ("nodes", node_id),
            expected="`join: all`, or branches of one length",
            hint=f"add `join: all` to '{node_id}'.",
        )


# --- maps -------------------------------------------------------------------------------------------------


def _check_map(found: Findings, node: MapNode) -> None:
    base: Path = ("nodes", node.id)
    limit = node.max_concurrency
    found.check_concurrency(limit, (*base, "max_concurrency"), "the setting of the graph")
    if isinstance(limit, str) and not limit.isdigit() and compile_template(limit).single is None:
        found.beyond(
            "bad_concurrency",
            f"max_concurrency is {limit!r}, which is neither a number nor a single {{{{path}}}}",
            (*base, "max_concurrency"),
            expected="a whole number of at least 1, or a template of one",
            hint='write 4, or "{{how_many}}".',
        )
    if node.over and compile_template(node.over).single is None:
        found.warning(
            "bad_over",
            f"map node '{node.id}': `over` template '{node.over}' must resolve to an array, "
            "and a template with other text resolves to text",
            (*base, "over"),
            expected="a template of exactly one {{path}}",
            hint='write "{{items}}" with the state key of a list.',
        )
    if node.branch in found.graph.nodes:
        _check_branch(found, node)


def _check_branch(found: Findings, node: MapNode) -> None:
    if found.is_full("error"):
        return
    path: Path = ("nodes", node.id, "branch")
    members = [found.graph.nodes[member] for member in branch_nodes(found.graph, node)]
    if found.compat.map_branch_is_one_node:
        members = members[:1]
    for member in members:
        what = f"map branch '{member.id}'" if member.id == node.branch else f"'{member.id}' in the map's branch"
        if isinstance(member, ApprovalNode | InputNode | EndNode | MapNode):
            found.error(
                "bad_branch",
                f"{what} is of type {member.kind}: {_WHY_NOT[member.kind]}",
                path,
                expected="nodes of type script, llm, agent or rag",
                hint="let the branch end before it, and continue from the map's `next`.",
            )
            continue
        if len(member.targets) > 1:
            found.error(
                "bad_branch",
                f"{what} fanned out to [{', '.join(member.targets)}]; a map branch must route to a single node",
                ("nodes", member.id, "next"),
                expected="one node",
                hint="run the steps one after another inside the branch.",
            )
        elif member.targets and found.compat.map_branch_is_one_node:
            found.error(
                "bad_branch",
                f"{what} has `next`, but a map's branch is a single node",
                ("nodes", member.id, "next"),
                expected="no `next`",
                hint="remove it, or use `compat: standard`, where a branch may be a chain.",
            )
    if len(members) == 1:
        _check_result(found, node, members[0])


_WHY_NOT = {
    "approval": "users are not asked once per item",
    "input": "users are not asked once per item",
    "end": "a branch can't end the run",
    "map": "a map inside a map is not supported",
}


def _check_result(found: Findings, node: MapNode, branch: AnyNode) -> None:
    """Report writes of a single-node branch other than its result, which the map discards."""
    for key in branch.updates:
        if key != node.output_key:
            found.error(
                "lost_write",
                f"map branch '{branch.id}' writes '{key}' in its state_updates, but only the output_key "
                f"'{node.output_key}' of map '{node.id}' is collected",
                ("nodes", branch.id, "state_updates", key),
                expected=f"state_updates of '{node.output_key}' alone",
                hint=f"rename it, or set `output_key: {key}` on '{node.id}'.",
            )
    schema = branch.output_schema if isinstance(branch, LlmNode | AgentNode) else None
    if schema and schema.get("properties") and found.compat.map_needs_output_key:
        found.error(
            "lost_write",
            f"map branch '{branch.id}' has an output_schema with properties, whose keys are not collected",
            ("nodes", branch.id, "output_schema"),
            expected="no `properties`",
            hint="use `compat: standard`, where the parsed answer is collected as it is.",
        )
