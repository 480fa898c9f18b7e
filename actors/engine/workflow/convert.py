"""Conversion of a workflow to a graph agent: the obstacles, and the files of an equivalent graph.

Nodes that ask a model or a user become nodes of the graph, in the order of the workflow's layers. The nodes of a
layer that always run become parallel nodes. Literals, conditions and processors only pass messages on, so their
effect is computed. If it is the same in every run, it is computed here and written into the graph's templates.
Otherwise a script before the affected nodes computes it (`workers.converted_workflow`, copied next to the graph), and
also decides whether these nodes run.

A feature without an equivalent in graphs is an obstacle (`reasons`); the command reports all of them, each with its
line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import yaml

from ....protocol.chat import models_of
from ....protocol.problems import Problem
from ....protocol.tree import Path as TreePath
from ....protocol.workflow.cycles import cycles_of
from ....protocol.workflow.model import (
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
    RegexExtract,
    Retry,
    Template,
    Workflow,
)
from .agent_request import TEMPERATURE
from .edges import CODE_FAILED
from .machine.structure import NodeEdges, Structure
from .rules import RULES, WorkflowRules
from .workers import converted_workflow
from .workers.converted_workflow import message, replay

_CODE = '''"""Runs before: {names}. See messages.py."""

from messages import turn

turn({listed})
'''


def convert(workflow: Workflow, name: str, own: Collection[str] = ()) -> tuple[dict[str, str], list[Problem]]:
    """Return the files of the graph agent `name` by path, or the problems that prevent a conversion, each with its
    line.

    Args:
        own: names of the user's condition functions.
    """
    found = reasons(workflow.graph, own)
    if found:
        return {}, found
    return _Conversion(workflow, name).files(), []


def notes(workflow: Workflow) -> Iterator[str]:
    """Yield the differences in behaviour between the workflow and its graph."""
    for node in workflow.graph.nodes:
        if node.on_error == "continue" and isinstance(node.config, AgentConfig):
            yield f"'{node.id}' continues after a failure with only the error as its output"
        if isinstance(node.config, AgentConfig) and _chooses(node.config.retry):
            yield f"'{node.id}' selects the failures to retry (`retry`); a graph retries those that can be temporary"


def _chooses(retry: Retry) -> bool:
    lists = (retry.retry_on_status_codes, retry.retry_on_exception_types, retry.retry_on_error_substrings)
    return retry.enabled and (any(each is not None for each in lists) or bool(retry.non_retry_exception_types))


class _Conversion:
    def __init__(self, workflow: Workflow, name: str) -> None:
        self._name = name
        self._graph = workflow.graph
        rules = RULES[workflow.compat or "standard"]
        structure = Structure(self._graph, rules)
        self._layers = [[item.node for item in layer if isinstance(item, NodeEdges)] for layer in structure.layers]
        self._keys = _keys(self._graph.nodes)
        self._into: dict[str, list[Edge]] = {node.id: [] for node in self._graph.nodes}
        for edge in self._graph.edges:
            self._into[edge.target].append(edge)
        self._flow = self._data(rules)
        self._plain, self._sure = self._known()
        self._written: dict[str, str] = {}

    def files(self) -> dict[str, str]:
        steps = [step for layer in self._layers for step in self._steps(layer)]
        nodes: dict[str, Any] = {}
        begins = [self._begins(i, step) for i, step in enumerate(steps)]
        ends_plainly = all(node.id in self._plain for node in self._graph.nodes)
        begins.append("done" if ends_plainly else "turn_last")
        for i, step in enumerate(steps):
            after = begins[i + 1]
            if not self._is_plain(step):
                nodes[f"turn_{i + 1}"] = self._turn(f"turn_{i + 1}", step, after)
            for node in step:
                nodes[self._keys[node.id]] = self._node(node, after, plain=self._is_plain(step))
        result = "{{result}}"
        if ends_plainly:
            result, _ = replay(self._flow, self._names(), [])
        else:
            nodes["turn_last"] = {"type": "script", "script": self._script("turn_last", []), "next": "done"}
        nodes["done"] = {"type": "end", "output": result}
        for step, after in zip(steps, begins[1:], strict=True):
            if len(step) > 1:
                nodes[after] = {**nodes[after], "join": "all"}
        graph = {
            "name": self._name,
            "description": self._graph.description or "",
            "version": "1.0",
            # 8 is the default of graphs, and a wider step must not be serialised.
            "settings": {"max_concurrency": max(8, *map(len, steps), 0)},
            # Values are not expanded again, so text with braces is passed through the state.
            "initial_state": {f"{self._keys[n.id]}_role": role for n in self._graph.nodes if (role := _odd_role(n))},
            "start": begins[0],
            "nodes": nodes,
        }
        files = {"graph.yaml": yaml.dump({k: v for k, v in graph.items() if v}, Dumper=_Dumper, **_STYLE)}
        if self._written:
            here = Path(converted_workflow.__file__)
            files |= self._written
            # Copied unchanged, which is why it imports nothing from Callboard.
            files["scripts/messages.py"] = here.read_text(encoding="utf-8")
            files["scripts/workflow.json"] = json.dumps(self._flow, indent=1, ensure_ascii=False) + "\n"
        return files

    def _steps(self, layer: Sequence[Node]) -> Iterator[list[Node]]:
        """Yield the nodes that always run as one parallel step, and each conditional or human node as its own step."""
        asking = [node for node in layer if isinstance(node.config, AgentConfig | HumanConfig)]
        asking = [node for node in asking if node.id in self._sure or node.id not in self._plain]
        together = [node for node in asking if node.id in self._sure and isinstance(node.config, AgentConfig)]
        if together:
            yield together
        for node in asking:
            if node not in together:
                yield [node]

    def _begins(self, i: int, step: Sequence[Node]) -> str:
        return self._keys[step[0].id] if self._is_plain(step) else f"turn_{i + 1}"

    def _is_plain(self, step: Sequence[Node]) -> bool:
        return len(step) == 1 and step[0].id in self._plain

    def _known(self) -> tuple[set[str], set[str]]:
        """Return the nodes whose inputs a template can express, and the nodes that run in every run."""
        plain: set[str] = set()
        sure = set(self._graph.start)
        for layer in self._layers:
            for node in layer:
                into = self._into[node.id]
                always = [isinstance(edge.condition, Always) and edge.process is None for edge in into]
                if all(always) and all(edge.source in plain for edge in into) and not _braces(node):
                    plain.add(node.id)
                if any(edge.trigger and edge.source in sure and _passes(edge) for edge in into):
                    sure.add(node.id)
        return plain, sure

    def _node(self, node: Node, after: str, *, plain: bool) -> dict[str, Any]:
        key = self._keys[node.id]
        if plain:
            _, asked = replay(self._flow, self._names(), [node.id])
            text = asked[node.id]
        else:
            text = f"{{{{{key}_prompt}}}}"
        found: dict[str, Any] = {"description": node.description} if node.description else {}
        if isinstance(node.config, HumanConfig):
            found |= {"type": "input", "question": text, "people_only": True}
            return {**found, "state_updates": {f"{key}_said": "{{input}}"}, "next": after}
        config = node.config
        assert isinstance(config, AgentConfig)
        model = f"{config.provider}:{config.name}"
        models = (model, *models_of(config.fallback_models)) if config.fallback_models else ()
        found |= {"type": "llm", "model": list(models) or model}
        if config.role:
            found["instructions"] = f"{{{{{key}_role}}}}" if _odd_role(node) else config.role
        found["prompt"] = text
        temperature = config.params.get("temperature", TEMPERATURE)
        found |= {} if temperature is None else {"temperature": temperature}
        found |= {"top_p": config.params["top_p"]} if config.params.get("top_p") is not None else {}
        found["max_attempts"] = config.retry.max_attempts if config.retry.enabled else 1
        # the dialect's own default also continues after a failure, but its run then counts as failed
        if node.on_error == "continue" and not node.by_dialect:
            found["on_error"] = "continue"
        return {**found, "state_updates": {f"{key}_said": "{{output}}"}, "next": after}

    def _turn(self, key: str, step: Sequence[Node], after: str) -> dict[str, Any]:
        script = {"type": "script", "script": self._script(key, step)}
        keys = [self._keys[node.id] for node in step]
        if len(step) > 1:
            return {**script, "next": keys}
        return {**script, "routes": keys, "next": after}

    def _script(self, key: str, step: Sequence[Node]) -> str:
        path = f"scripts/{key}.py"
        names = [node.id for node in step]
        told = ", ".join(self._keys[name] for name in names) or "the end"
        self._written[path] = _CODE.format(names=told, listed=json.dumps(names, ensure_ascii=True))
        return path

    def _names(self) -> dict[str, str]:
        said = {f"{key}_said": f"{{{{{key}_said}}}}" for key in self._keys.values()}
        return {**said, "initial_prompt": "{{initial_prompt}}"}

    def _data(self, rules: WorkflowRules) -> dict[str, Any]:
        edges: dict[str, list[Any]] = {}
        for edge in self._graph.edges:
            edges.setdefault(edge.source, []).append(_edge(edge, rules))
        left = {edge.source for edge in self._graph.edges}
        return {
            "start": list(dict.fromkeys(self._graph.start)),
            "ends": list(self._graph.end),
            "last": [node.id for node in self._graph.nodes if node.id not in left][:1],
            "layers": [[node.id for node in layer] for layer in self._layers],
            "nodes": {
                node.id: {
                    "key": self._keys[node.id],
                    **_kind(node),
                    "seeds": [message(seed.role, seed.content) for seed in node.input],
                }
                for node in self._graph.nodes
            },
            "edges": edges,
        }


def _keys(nodes: Sequence[Node]) -> dict[str, str]:
    """Return a unique name for each node that is valid at the start of a state key."""
    found: dict[str, str] = {}
    taken = {"done", "result", "turn_last"}
    for node in nodes:
        plain = re.sub(r"\W+", "_", node.id, flags=re.ASCII).strip("_") or "node"
        # Avoid a clash with the generated nodes `turn_1` and so on, and a leading digit.
        plain = f"{plain}_node" if plain.startswith("turn_") or plain[0].isdigit() else plain
        key, number = plain, 1
        while key in taken:
            number += 1
            key = f"{plain}_{number}"
        taken.add(key)
        found[node.id] = key
    return found


def _edge(edge: Edge, rules: WorkflowRules) -> dict[str, Any]:
    process = edge.process
    if isinstance(process, RegexExtract) and not _has_group(process):
        process = None
    return {
        "to": edge.target,
        "condition": condition_of(edge),
        "process": msgspec.to_builtins(process),
        "carries": edge.carry_data,
        "triggers": edge.trigger,
        "keeps": edge.keep_message,
        "clears": edge.clear_context,
        "clears_kept": edge.clear_kept_context and (edge.clear_context or not rules.kept_needs_clear),
    }


def _has_group(process: RegexExtract) -> bool:
    """Return True if the pattern has the group; without it a workflow carries the text unchanged."""
    pattern = re.compile(process.pattern)
    group = process.group or 0
    return group in pattern.groupindex if isinstance(group, str) else 0 <= group <= pattern.groups


def _kind(node: Node) -> dict[str, Any]:
    match node.config:
        case LiteralConfig(content=content, role=role):
            return {"kind": "literal", "content": content, "role": role}
        case PassthroughConfig(only_last_message=only_last):
            return {"kind": "passthrough", "only_last": only_last}
        case HumanConfig(description=description):
            return {"kind": "human", "description": (description or "").strip()}
        case AgentConfig(input_mode=mode):
            return {"kind": "agent", "headed": mode == "prompt"}
    raise AssertionError(f"`reasons` lets no {type(node.config).__name__} pass")


def _passes(edge: Edge) -> bool:
    drops = isinstance(edge.process, RegexExtract) and edge.process.on_no_match == "drop" and edge.carry_data
    return condition_of(edge) is None and not drops


def _braces(node: Node) -> bool:
    """Return True if the node's own text contains characters that a template would replace."""
    texts = [seed.content for seed in node.input]
    match node.config:
        case LiteralConfig(content=content):
            texts.append(content)
        case HumanConfig(description=description):
            texts.append(description or "")
    return any("{{" in text for text in (*texts, node.id))


def _odd_role(node: Node) -> str | None:
    """Return the role if it contains template syntax, else None; such a role is passed through the state."""
    role = node.config.role if isinstance(node.config, AgentConfig) else None
    return role if role and "{{" in role else None


class _Dumper(yaml.SafeDumper):
    pass


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)
_STYLE: dict[str, Any] = {"sort_keys": False, "allow_unicode": True, "width": 110}


_AS_DECLARED: dict[str, Condition] = {
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
    "python": "its code runs in the workspace of the run, and script nodes of a graph have no workspace",
    "subgraph": "an agent node of a graph can name the workflow file of a subgraph, but passes only text to it",
    "loop_counter": "graphs have no node that counts the rounds of a cycle",
    "loop_timer": "graphs have no node that measures the time of a cycle",
    "custom": "graphs have no custom node types",
}
_PARAMS = {"temperature", "top_p"}


class _Reason(NamedTuple):
    """Obstacle to the conversion; `at` is its position within the node or edge."""

    at: TreePath
    code: str
    message: str
    hint: str = ""


def reasons(graph: Graph, own: Collection[str] = ()) -> list[Problem]:
    """Return all obstacles, in the order of the file.

    Args:
        own: names of the user's condition functions, which override the built-in ones.
    """

    def problem(path: TreePath, code: str, message: str, hint: str = "") -> Problem:
        return graph.source.problem("error", code, message, path, hint=hint or None)

    found: list[Problem] = []
    if graph.is_majority_voting:
        found.append(problem(graph.path, "no_voting", "`is_majority_voting` has no equivalent in graphs"))
    nodes = {node.id: node for node in graph.nodes}
    for cycle in cycles_of(graph):
        named = ", ".join(f"'{id}'" for id in cycle)
        hint = "a graph repeats nodes only if a script prints `_next`; write that script by hand."
        found.append(
            problem(
                nodes[cycle[0]].path, "no_cycle", f"these nodes form a cycle, which graphs can't have: {named}", hint
            )
        )
    # The count needs a graph without cycles.
    most = _most_messages(graph) if not found else {}
    for node in graph.nodes:
        told = _of_node(node, most.get(node.id, (0, True)))
        found += [problem((*node.path, *at), *said) for at, *said in told]
    for edge in graph.edges:
        found += [problem((*edge.path, *at), *said) for at, *said in _of_edge(edge, own)]
    return sorted(found, key=lambda each: (each.line, each.column))


def condition_of(edge: Edge) -> Any:
    """Return the condition as data for `converted_workflow`; None if it is always met."""
    condition = edge.condition
    if isinstance(condition, FunctionCondition):
        condition = _AS_DECLARED[condition.name]
    return None if isinstance(condition, Always) else msgspec.to_builtins(condition)


def _of_node(node: Node, most: tuple[int, bool]) -> Iterator[_Reason]:
    config = node.config
    kind = config.__struct_config__.tag
    if isinstance(kind, str) and kind in _KINDS:
        yield _Reason(("type",), "no_such_node", f"'{node.id}' is a {kind} node: {_KINDS[kind]}")
    if node.output:
        yield _Reason(
            ("output",),
            "no_output",
            f"'{node.id}' has an output before it runs (`output`), which nodes of a graph can't have",
        )
    if isinstance(config, AgentConfig | HumanConfig) and config.memories:
        yield _Reason(("config", "memories"), "no_memories", f"'{node.id}' has memories")
    if not isinstance(config, AgentConfig):
        return
    if config.provider == "callboard":
        yield _Reason(
            ("config", "provider"),
            "no_agents",
            f"'{node.id}' runs one of your agents (`provider: callboard`)",
            "write an agent node for it by hand.",
        )
    if config.base_url or config.api_key:
        hint = "add it to `clients` of config.yaml, and use its name as `provider`."
        key = "base_url" if config.base_url else "api_key"
        yield _Reason(("config", key), "no_client", f"'{node.id}' defines its own client (`base_url`, `api_key`)", hint)
    skills = config.skills is not None and config.skills.enabled
    for what, given in (("tooling", config.tooling), ("thinking", config.thinking), ("skills", skills)):
        if given:
            yield _Reason(
                ("config", what),
                f"no_{what}",
                f"'{node.id}' has `{what}`, which llm nodes of a graph do not have in the same form",
            )
    for key in sorted(set(config.params) - _PARAMS):
        hint = "only `temperature` and `top_p` can be converted."
        yield _Reason(("config", "params", key), "no_params", f"an llm node has no `{key}`", hint)
    count, users = most
    if config.input_mode == "messages" and (count > 1 or not users):
        what = "several messages" if count > 1 else "messages with other roles than `user`"
        hint = "`input_mode: prompt` joins them into one text."
        message = f"'{node.id}' can receive {what} as a conversation, and an llm node has one prompt"
        yield _Reason((), "no_conversation", message, hint)


def _of_edge(edge: Edge, own: Collection[str]) -> Iterator[_Reason]:
    name = f"the edge from '{edge.source}' to '{edge.target}'"
    function = edge.condition.name if isinstance(edge.condition, FunctionCondition) else "true"
    # A user's function overrides the built-in one of the same name, so its meaning is unknown.
    if function not in _AS_DECLARED or function in own:
        hint = "use a condition of type `keyword` or `regex`."
        yield _Reason(
            ("condition",),
            "no_function",
            f"{name} has the condition function '{function}', which graphs can't call",
            hint,
        )
    if isinstance(edge.process, FunctionProcessor):
        yield _Reason(
            ("process",),
            "no_function",
            f"{name} has the processor function '{edge.process.name}', which graphs can't call",
        )
    if isinstance(edge.process, Template) and "{{" in edge.process.template.replace("{{content}}", ""):
        yield _Reason(("process",), "no_template", f"the template of {name} reads more than `{{{{content}}}}`")
    if edge.dynamic is not None:
        what = f"{name} runs its target once per unit ({edge.dynamic.type})"
        yield _Reason(
            ("dynamic",),
            "no_dynamic",
            what,
            "write a map node by hand, and a script that prints its list.",
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
        says[id] = _most_outputs(node, gets[id])
    return gets


def _most_outputs(node: Node, given: tuple[int, bool]) -> tuple[int, bool]:
    """Return the most messages that a node with these inputs outputs, and whether all are from a user."""
    if isinstance(node.config, LiteralConfig):
        return 1, node.config.role == "user"
    if isinstance(node.config, PassthroughConfig):
        return (1 if node.config.only_last_message else max(1, given[0])), given[1]
    return 1, True
