"""Obstacles to the conversion of a workflow: features without an equivalent in graphs, each with its line."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from graphlib import TopologicalSorter
from typing import Any, NamedTuple

import msgspec

from .....protocol.problems import Problem
from .....protocol.tree import Path
from .....protocol.workflow.cycles import cycles_of
from .....protocol.workflow.model import (
    AgentConfig,
    Always,
    Condition,
    Edge,
    FunctionCondition,
    FunctionProcessor,
    Graph,
    HumanConfig,
    KeywordCondition,
    LiteralConfig,
    Never,
    Node,
    PassthroughConfig,
    RegexCondition,
    Template,
)
from ..edges.conditions import CODE_FAILED

BUILT_IN: dict[str, Condition] = {
    "true": Always(),
    "always_false": Never(),
    "contains_keyword": KeywordCondition(any=("trigger",), case_sensitive=False),
    "not_contains_keyword": KeywordCondition(none=("trigger",), case_sensitive=False),
    "length_greater_than_5": RegexCondition(pattern="(?s).{6}"),
    "code_pass": KeywordCondition(none=(CODE_FAILED,)),
    "code_fail": KeywordCondition(any=(CODE_FAILED,)),
}
"""Condition functions that a declarative condition can replace."""

_KINDS = {
    "python": "a python node works in the run's own directory, and a script node of a graph has none",
    "subgraph": "a graph's agent node may name the workflow file of a subgraph, but tells it the text alone",
    "loop_counter": "a loop_counter counts the rounds of a cycle",
    "loop_timer": "a loop_timer measures the rounds of a cycle",
    "custom": "only workflows know its type",
}
_PARAMS = {"temperature", "top_p"}


class _Reason(NamedTuple):
    """Obstacle to the conversion; `at` is its position within the node or edge."""

    at: Path
    code: str
    message: str
    hint: str = ""


def reasons(graph: Graph, own: Collection[str] = ()) -> list[Problem]:
    """Return all obstacles, in the order of the file.

    Args:
        own: names of the user's condition functions, which override the built-in ones.
    """

    def problem(path: Path, code: str, message: str, hint: str = "") -> Problem:
        return graph.source.problem("error", code, message, path, hint=hint or None)

    found: list[Problem] = []
    if graph.is_majority_voting:
        found.append(problem(graph.path, "no_voting", "the majority decides, and a graph doesn't vote"))
    nodes = {node.id: node for node in graph.nodes}
    for cycle in cycles_of(graph):
        named = ", ".join(f"'{id}'" for id in cycle)
        hint = "a graph goes round by a script's `_next`; that has to be written by hand."
        found.append(problem(nodes[cycle[0]].path, "no_cycle", f"messages go round: {named}", hint))
    # The count needs a graph without cycles.
    most = _most_messages(graph) if not found else {}
    for node in graph.nodes:
        told = _of_node(node, most.get(node.id, (0, True)))
        found += [problem((*node.path, *at), *said) for at, *said in told]
    for edge in graph.edges:
        found += [problem((*edge.path, *at), *said) for at, *said in _of_edge(edge, own)]
    return sorted(found, key=lambda each: (each.line, each.column))


def condition_of(edge: Edge) -> Any:
    """Return the condition as data for `replay`; None if it is always met."""
    condition = edge.condition
    if isinstance(condition, FunctionCondition):
        condition = BUILT_IN[condition.name]
    return None if isinstance(condition, Always) else msgspec.to_builtins(condition)


def _of_node(node: Node, most: tuple[int, bool]) -> Iterator[_Reason]:
    config = node.config
    kind = config.__struct_config__.tag
    if isinstance(kind, str) and kind in _KINDS:
        yield _Reason(("type",), "no_such_node", f"'{node.id}' is a {kind} node: {_KINDS[kind]}")
    if node.output:
        yield _Reason(("output",), "no_output", f"'{node.id}' has said something before it ran (`output`)")
    if isinstance(config, AgentConfig | HumanConfig) and config.memories:
        yield _Reason(("config", "memories"), "no_memories", f"'{node.id}' has memories")
    if not isinstance(config, AgentConfig):
        return
    if config.provider == "callboard":
        yield _Reason(
            ("config", "provider"),
            "no_agents",
            f"'{node.id}' is an agent of yours",
            "write an agent node for it by hand.",
        )
    if config.base_url or config.api_key:
        hint = "make it a client of config.yaml, and name that as `provider`."
        key = "base_url" if config.base_url else "api_key"
        yield _Reason(
            ("config", key), "no_client", f"'{node.id}' describes a client of its own (`base_url`, `api_key`)", hint
        )
    skills = config.skills is not None and config.skills.enabled
    for what, given in (("tooling", config.tooling), ("thinking", config.thinking), ("skills", skills)):
        if given:
            yield _Reason(
                ("config", what), f"no_{what}", f"'{node.id}' has {what}, which an llm node has not in the same way"
            )
    for key in sorted(set(config.params) - _PARAMS):
        hint = "only temperature and top_p can be said."
        yield _Reason(("config", "params", key), "no_params", f"an llm node has no `{key}`", hint)
    count, users = most
    if config.input_mode == "messages" and (count > 1 or not users):
        what = "several messages" if count > 1 else "messages that are not a user's"
        hint = "`input_mode: prompt` puts them into one text."
        message = f"'{node.id}' may get {what} as a conversation, and an llm node has one prompt"
        yield _Reason((), "no_conversation", message, hint)


def _of_edge(edge: Edge, own: Collection[str]) -> Iterator[_Reason]:
    name = f"the edge from '{edge.source}' to '{edge.target}'"
    function = edge.condition.name if isinstance(edge.condition, FunctionCondition) else "true"
    # A user's function overrides the built-in one of the same name, so its meaning is unknown.
    if function not in BUILT_IN or function in own:
        hint = "say it by a condition of type keyword or regex."
        yield _Reason(("condition",), "no_function", f"{name} asks the function '{function}'", hint)
    if isinstance(edge.process, FunctionProcessor):
        yield _Reason(
            ("process",), "no_function", f"{name} has the function '{edge.process.name}' change what it carries"
        )
    if isinstance(edge.process, Template) and "{{" in edge.process.template.replace("{{content}}", ""):
        yield _Reason(("process",), "no_template", f"the template of {name} looks at more than `{{{{content}}}}`")
    if edge.dynamic is not None:
        what = f"{name} makes a {edge.dynamic.type} of its target"
        yield _Reason(
            ("dynamic",),
            "no_dynamic",
            what,
            "a graph's map node needs a script that makes a list; that has to be written by hand.",
        )


def _most_messages(graph: Graph) -> Mapping[str, tuple[int, bool]]:
    """Return for each node the most messages it can receive, and whether all are from a user.

    The graph must not have cycles.
    """
    nodes = {node.id: node for node in graph.nodes}
    into: dict[str, list[str]] = {id: [] for id in nodes}
    before = TopologicalSorter[str](dict.fromkeys(nodes, ()))
    for edge in graph.edges:
        before.add(edge.target, edge.source)
        if edge.carry_data:
            into[edge.target].append(edge.source)
    gets: dict[str, tuple[int, bool]] = {}
    says: dict[str, tuple[int, bool]] = {}
    for id in before.static_order():
        node = nodes[id]
        begins = id in graph.start
        # The task replaces the seeds of a start node.
        first = 1 if begins else len(node.input)
        users = begins or all(seed.role == "user" for seed in node.input)
        given = [says[source] for source in into[id]]
        gets[id] = (first + sum(count for count, _ in given), users and all(of_users for _, of_users in given))
        says[id] = _source_line(node, gets[id])
    return gets


def _source_line(node: Node, given: tuple[int, bool]) -> tuple[int, bool]:
    if isinstance(node.config, LiteralConfig):
        return 1, node.config.role == "user"
    if isinstance(node.config, PassthroughConfig):
        return (1 if node.config.only_last_message else max(1, given[0])), given[1]
    return 1, True
