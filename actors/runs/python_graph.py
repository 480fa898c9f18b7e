"""`callboard.Graph`: a graph made by a program, of Python functions and agents.

    graph = callboard.Graph("review", state={"notes": []})

    @graph.node("plan")
    async def plan(state):
        return {"topics": ["speed", "safety"]}

    graph.map("look", critic, over="topics", item="topic", prompt="Judge the {{topic}}.", into="notes")
    graph.node("write", writer, prompt="Sum up: {{notes}}", into="draft")
    graph.edge("plan", "look", "write")
    graph.branch("write", good_enough, {True: "done", False: "plan"})
    graph.end("done", output="{{draft}}")

    outcome = await root.run(graph, "the new engine")
    print(graph.to_yaml())

It is the graph of a `graph.yaml` (docs/graphs.md), with the same engine, events, journal, and checks. Besides agents
and functions it accepts every other node type of that language, as a mapping: `graph.node("ask", {"type": "input",
"question": "Who?"})`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, final, overload

import msgspec

from ...protocol.decoding import convert
from ...protocol.deferred_types import defer
from ...protocol.errors import InvalidFile, UsageError
from ...protocol.graph import (
    NODE_TYPES,
    AgentNode,
    AnyNode,
    EndNode,
    FunctionNode,
    GraphFile,
    MapNode,
    OwnLimits,
    Raw,
    Settings,
    Updates,
)
from ...protocol.graph import Graph as GraphData
from ...protocol.problems import errors_in
from ..engine.graph.nodes.function import signature_of
from ..engine.graph.validate import check_graph
from ..work.results import KEY, ResultType
from .python_agent import Agent, family, joined, loop_agent, models_of_agent
from .target import GraphAgent

if TYPE_CHECKING:
    from ..work.models.python_model import Model
    from ..work.tools.functions import Function
else:
    defer(globals(), {"..work.models.python_model": "Model", "..work.tools.functions": "Function"})

F = TypeVar("F", bound=Callable[..., Any])

ROUTES = "_next"
ITEM_RESULT = "output"
"""State key in which the branch of a map stores its result."""


@final
class Graph:
    """Graph made in Python; see the module. Nodes and edges are added in any order, and checked by `build`.

    Args:
        name: name of the graph, in events and lists of runs.
        start: the first node; None for the one that is added first.
        state: the state before the first node; JSON values.
        reducers: by state key, how writes of parallel nodes are combined, as in a `graph.yaml`.
        model: default model of its nodes: `client:model`, or a model made in Python.
        description: description for users.
        limits: upper bounds for the graph and its descendants.
        max_loop_iterations: how often one node may be entered; 0 for no limit.
        max_concurrency: maximum of concurrent nodes of a step, and of concurrent items of a map.
        timeout: seconds for the whole graph; None for no limit.
    """

    def __init__(
        self,
        name: str,
        *,
        start: str | None = None,
        state: Mapping[str, Any] | None = None,
        reducers: Mapping[str, str] | None = None,
        model: str | Model | None = None,
        description: str = "",
        limits: OwnLimits | Mapping[str, Any] | None = None,
        max_loop_iterations: int = 100,
        max_concurrency: int = 8,
        timeout: float | None = None,
    ) -> None:
        self.name = name
        self._nodes: dict[str, AnyNode] = {}
        self._next: dict[str, list[str]] = {}
        self._branches: dict[str, str] = {}
        self._agents: dict[str, Agent[Any]] = {}
        self._start = start
        self._models: Mapping[str, Model] = {}
        if model is not None and not isinstance(model, str):
            from ..work.models.python_model import by_name

            # A model object has no place in a graph's data; the data name it, and the run gets the object beside them.
            self._models = by_name((model,), f"graph '{name}': model")
            model = model.name
        settings = {
            "max_loop_iterations": max_loop_iterations,
            "max_concurrency": max_concurrency,
            "timeout": timeout,
        }
        self._top: dict[str, Any] = {
            "name": name,
            "description": description,
            "model": model,
            "limits": limits,
            "settings": settings,
            "initial_state": dict(state or {}),
            "reducers": dict(reducers or {}),
        }
        self._built: GraphAgent | None = None

    @overload
    def node(
        self,
        id: str,
        work: None = None,
        /,
        *,
        into: str | None = None,
        next: str | Sequence[str] | None = None,
        **keys: Any,
    ) -> Callable[[F], F]: ...
    @overload
    def node(
        self,
        id: str,
        work: Function | Agent[Any] | Mapping[str, Any],
        /,
        *,
        prompt: str | None = None,
        into: str | None = None,
        next: str | Sequence[str] | None = None,
        **keys: Any,
    ) -> None: ...
    def node(
        self,
        id: str,
        work: Function | Agent[Any] | Mapping[str, Any] | None = None,
        /,
        *,
        prompt: str | None = None,
        into: str | None = None,
        next: str | Sequence[str] | None = None,
        **keys: Any,
    ) -> Callable[[F], F] | None:
        """Add a node. Without `work`, return a decorator for its function.

        Args:
            id: id of the node.
            work: a function, an agent, or a mapping: a node as in a `graph.yaml`. A function is sync or async, and has
                one parameter for the state (its own dict) or none. A parameter of type `callboard.Context` gets the
                context. It returns a mapping of state keys to write, or None.
            prompt: prompt of an agent, a template (`{{topic}}` is a key of the state).
            into: state key for the value of the function, or the answer of the agent. An agent with a `result` type
                stores the value itself.
            next: the following node, or a list of nodes that run in parallel; or see `edge`.
            keys: other keys of the node, as in a `graph.yaml`: `timeout`, `fallback`, `on_error`, `join`,
                `max_attempts`, `routes`, `limits`, ...

        Raises:
            UsageError: the id is in use, `work` is invalid, or a key has a wrong value.
        """
        if work is None:

            def declare(function: F) -> F:
                self.node(id, function, into=into, next=next, **keys)
                return function

            return declare
        if isinstance(work, Mapping):
            if prompt is not None:
                keys["prompt"] = prompt
            self._add(self._of_mapping(id, {**work, **keys}, into))
        elif isinstance(work, Agent):
            self._add(self._of_agent(id, work, prompt, into, keys))
        else:
            if prompt is not None:
                raise UsageError(f"node '{id}': a function has no prompt")
            self._add(self._of_function(id, work, keys, updates=_updates(into)))
        if next is not None:
            self._lead(id, (next,) if isinstance(next, str) else tuple(next))
        return None

    def edge(self, *nodes: str | Sequence[str]) -> None:
        """Add edges along a path: `edge("plan", "search", "write")`. A list means nodes that run in parallel.

        Raises:
            UsageError: fewer than two nodes.
        """
        if len(nodes) < 2:
            raise UsageError("an edge leads from one node to another: graph.edge('plan', 'write')")
        for source, target in pairwise(nodes):
            targets = (target,) if isinstance(target, str) else tuple(target)
            for each in (source,) if isinstance(source, str) else source:
                self._lead(each, targets)

    def branch(
        self, source: str, decide: Function, targets: Sequence[str] | Mapping[Any, str], *, name: str | None = None
    ) -> None:
        """Let a function choose the node that follows `source`. If it chooses an earlier node, the graph loops.

        Args:
            source: the node.
            decide: called with the state, as a node's function; returns the id of a target, or a key of `targets`.
            targets: ids of all nodes that it may choose; or values that it may return, each with an id.
            name: id of the node that calls the function; by default `<source>_branch`.

        Raises:
            UsageError: `source` already leads to a node, or the id is in use.
        """
        ways: dict[Any, str] = dict(targets) if isinstance(targets, Mapping) else {each: each for each in targets}
        # A branch is a script node of its own, so that its choice is a step of the run: visible, durable, replayable.
        id = name or f"{source}_branch"
        keys = {"routes": tuple(dict.fromkeys(ways.values()))}
        node = self._of_function(id, decide, keys)
        # The node keeps the script name of `decide`, so `to_yaml` names the user's function and not the wrapper.
        self._add(msgspec.structs.replace(node, function=_router(decide, ways)))
        # Both would hold: the run would follow the edge and the branch in parallel.
        if source in self._next:
            raise UsageError(f"node '{source}' already leads to {self._next[source]}, so it can't branch")
        self._branches[source] = id
        self._lead(source, (id,))

    def map(
        self,
        id: str,
        work: Function | Agent[Any],
        /,
        *,
        over: str,
        into: str,
        item: str = "item",
        prompt: str | None = None,
        max_concurrency: int | None = None,
        next: str | Sequence[str] | None = None,
        **keys: Any,
    ) -> None:
        """Add a node that processes every item of a list, and collects the results in the list's order.

        Args:
            id: id of the node; the node for one item is `<id>_item`.
            work: a function that is called with the item, and returns the result; or an agent.
            over: state key of the list.
            into: state key of the list of results.
            item: state key of the item, for prompts: `{{item}}`.
            prompt: prompt of an agent for one item; by default the item.
            max_concurrency: maximum of concurrent items.
            next: the following node or nodes.
            keys: other keys of the node for one item, as in `node`.
        """
        inner = f"{id}_item"
        if isinstance(work, Agent):
            prompt = f"{{{{{item}}}}}" if prompt is None else prompt
            self._add(self._of_agent(inner, work, prompt, ITEM_RESULT, keys))
        else:
            updates = _updates(ITEM_RESULT)
            self._add(self._of_function(inner, work, {**keys, "item": item}, updates=updates))
        mapped = MapNode(
            id=id,
            over=f"{{{{{over}}}}}",
            as_=item,
            branch=inner,
            collect_into=into,
            output_key=ITEM_RESULT,
            max_concurrency=max_concurrency,
        )
        self._add(mapped)
        # The first node added was the item's; the graph must start at the map instead.
        if self._start is None and next_id(self._nodes) == inner:
            self._start = id
        if next is not None:
            self._lead(id, (next,) if isinstance(next, str) else tuple(next))

    def end(self, id: str = "end", *, output: str = "", error: str = "") -> None:
        """Add an end node. Its rendered `output` is the output of the run. With an `error` the run fails.

        Both are templates, in which missing keys are empty.
        """
        self._add(EndNode(id=id, output=output, error=error))

    def build(self) -> GraphAgent:
        """Return the graph ready to run; runs and `to_yaml` call this.

        Raises:
            InvalidFile: it has errors; the text names all of them.
        """
        if self._built is not None:
            return self._built
        file = f"graph '{self.name}'"
        # Empty values are left out, so that the struct's own defaults apply.
        top = {key: value for key, value in self._top.items() if value not in (None, "", {})}
        top["settings"] = _converted(Settings, self._top["settings"], f"{file}: ")
        if self._top["limits"] is not None:
            top["limits"] = _converted(OwnLimits, self._top["limits"], f"{file}: limits: ")
        nodes = {
            id: msgspec.structs.replace(node, next=tuple(self._next[id])) if id in self._next else node
            for id, node in self._nodes.items()
        }
        if not nodes:
            raise InvalidFile(f"{file} has no nodes")
        # `check_graph` sees nodes only; an edge from a missing node would be dropped without a word.
        missing = [id for id in self._next if id not in nodes]
        if missing:
            raise InvalidFile(f"{file}: an edge begins at '{missing[0]}', and there is no such node")
        graph = GraphData(start=self._start or next_id(nodes), nodes=nodes, **top)
        problems = [msgspec.structs.replace(problem, file=file) for problem in check_graph(graph)]
        if errors := errors_in(problems):
            raise InvalidFile("\n".join([f"{file} has {len(errors)} error(s):", *map(str, errors)]), problems)
        agents = [each for agent in self._agents.values() for each in (agent, *family(agent))]
        below = {each.name: loop_agent(each) for each in agents}
        self._built = GraphAgent(
            name=self.name,
            # No directory: this path does not exist, so no file near the program is found by accident.
            directory=Path(f"<{file}>"),
            file=file,
            graph=graph,
            problems=tuple(problems),
            made=True,
            below=below,
            models=joined((self._models, *map(models_of_agent, self._agents.values()))),
        )
        return self._built

    def to_yaml(self) -> str:
        """Return the graph as a `graph.yaml`, with functions as `module:name` and agents by name.

        Raises:
            InvalidFile: as `build`.
        """
        import yaml

        graph = self.build().graph
        top = _changed(graph, GraphFile, leave_out=("nodes",))
        top["nodes"] = {id: _node_as_data(node) for id, node in graph.nodes.items()}
        return yaml.safe_dump(top, sort_keys=False, allow_unicode=True, width=100)

    # --- nodes ------------------------------------------------------------------------------------------------------

    def _add(self, node: AnyNode) -> None:
        if node.id in self._nodes:
            raise UsageError(f"graph '{self.name}' already has a node '{node.id}'")
        self._built = None
        self._nodes[node.id] = node

    def _lead(self, source: str, targets: Sequence[str]) -> None:
        if source in self._branches and self._branches[source] not in targets:
            raise UsageError(f"node '{source}' branches, so it can't lead to {', '.join(targets)} as well")
        self._built = None
        known = self._next.setdefault(source, [])
        known += [each for each in targets if each not in known]

    def _of_function(
        self, id: str, function: Function, keys: Mapping[str, Any], *, updates: Updates | None = None
    ) -> FunctionNode:
        if not callable(function):
            raise UsageError(f"node '{id}': {function!r} is not a function, a callboard.Agent, or a mapping")
        signature_of(function)
        module = getattr(function, "__module__", "")
        name = f"{module}:{getattr(function, '__qualname__', type(function).__qualname__)}"
        fields = {"id": id, "script": name, "state_updates": updates, **keys}
        return _made(FunctionNode, id, fields, function=function)

    def _of_agent(
        self, id: str, agent: Agent[Any], prompt: str | None, into: str | None, keys: Mapping[str, Any]
    ) -> AnyNode:
        known = self._agents.setdefault(agent.name, agent)
        if known is not agent:
            raise UsageError(f"graph '{self.name}' has two agents with the name '{agent.name}'")
        fields = {"id": id, "agent": agent.name, "prompt": "{{initial_prompt}}" if prompt is None else prompt, **keys}
        if agent.result is not None:
            kind = ResultType.of(agent.result)
            fields["output_schema"] = kind.schema
            fields["state_updates"] = _updates(into, f"output.{KEY}" if kind.is_wrapped else "output")
        else:
            fields["state_updates"] = None if into is None else {into: "{{output}}"}
        return _made(AgentNode, id, fields)

    def _of_mapping(self, id: str, keys: Mapping[str, Any], into: str | None) -> AnyNode:
        kind = keys.get("type")
        if kind not in NODE_TYPES:
            raise UsageError(f"node '{id}': type={kind!r}: expected one of {', '.join(NODE_TYPES)}")
        fields = {"id": id, **{key: value for key, value in keys.items() if key != "type"}}
        if into is not None:
            scope = {"approval": "choice", "input": "input"}.get(str(kind), "output")
            fields["state_updates"] = {**(fields.get("state_updates") or {}), into: Raw(raw=f"{{{{{scope}}}}}")}
        if isinstance(fields.get("next"), str):
            fields["next"] = (fields["next"],)
        return _made(NODE_TYPES[kind], id, fields)


def next_id(nodes: Mapping[str, Any]) -> str:
    """Return the id of the first node."""
    return next(iter(nodes))


def _updates(into: str | None, scope: str = "output") -> Updates | None:
    return None if into is None else {into: Raw(raw=f"{{{{{scope}}}}}")}


N = TypeVar("N", bound=msgspec.Struct)


def _made(kind: type[N], id: str, fields: Mapping[str, Any], **more: Any) -> N:
    """Return a node with these fields, converted to their types.

    Raises:
        UsageError: a field has another type, or does not exist.
    """
    types = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    values: dict[str, Any] = {}
    for key, value in fields.items():
        if key not in types or key == "function":
            known = ", ".join(name for name in types if name not in ("id", "function", "script", "item"))
            raise UsageError(f"node '{id}': there is no key '{key}'; there are: {known}")
        values[types[key].name] = _converted(types[key].type, value, f"node '{id}': {key}: ")
    try:
        return kind(**values, **more)
    except TypeError as error:
        raise UsageError(f"node '{id}': {error}") from error


def _converted(kind: Any, value: Any, where: str) -> Any:
    try:
        return convert(value, kind)
    except msgspec.ValidationError as error:
        raise UsageError(f"{where}{value!r}: {error}") from error


def _router(decide: Function, ways: Mapping[Any, str]) -> Function:
    """Return the function of a branch: it translates the decision into the engine's routing key."""
    from functools import wraps

    from ..work.tools.functions import is_async

    def chosen(answer: Any) -> dict[str, str]:
        try:
            return {ROUTES: ways[answer]}
        except (KeyError, TypeError):
            name = getattr(decide, "__name__", repr(decide))
            raise UsageError(
                f"'{name}' returned {answer!r}, but the branch has targets only for: {', '.join(map(repr, ways))}"
            ) from None

    if is_async(decide):

        @wraps(decide)
        async def route(*args: Any, **values: Any) -> dict[str, str]:
            return chosen(await decide(*args, **values))

        return route

    @wraps(decide)
    def route_at_once(*args: Any, **values: Any) -> dict[str, str]:
        return chosen(decide(*args, **values))

    return route_at_once


# --- as YAML ----------------------------------------------------------------------------------------------------------


def _node_as_data(node: AnyNode) -> dict[str, Any]:
    if isinstance(node, FunctionNode):
        keys = _changed(node, FunctionNode, leave_out=("id", "function", "script"))
        return {"type": node.kind, "function": node.script, **keys}
    return {"type": node.kind, **_changed(node, type(node), leave_out=("id",))}


def _changed(struct: msgspec.Struct, kind: type[msgspec.Struct], leave_out: Sequence[str]) -> dict[str, Any]:
    """Return the fields of a struct that differ from their defaults, as JSON values."""
    found: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        value = getattr(struct, field.name)
        if field.name in leave_out or value == field.default or value in ({}, (), None):
            continue
        if isinstance(value, msgspec.Struct) and not isinstance(value, Raw):
            value = _changed(value, type(value), ())
            if not value:
                continue
        found[field.encode_name] = msgspec.to_builtins(value)
    if isinstance(found.get("next"), list | tuple) and len(found["next"]) == 1:
        found["next"] = found["next"][0]
    return found
