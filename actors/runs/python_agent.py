"""`callboard.Agent`: an agent made by a program, with its functions, its child agents and the type of its result.

    clerk = callboard.Agent(name="clerk", instructions="Answer.", tools=[look_up], agents=[archivist], result=Report)

It is defined by the program alone. It is checked when it is made. It reads nothing from the environment, whereas an
agent in a file does (`CLERK_MODEL`). It has no tools that ask the user, unless it has `can_ask_user=True`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic

import msgspec
from msgspec.structs import force_setattr

from ...protocol.agent import Agent as AgentData
from ...protocol.decoding import convert
from ...protocol.deferred_types import defer
from ...protocol.errors import UsageError
from ...protocol.problems import Problem
from ..work.results import ResultType
from ..work.tools.builtin.table import SPECS
from ..work.tools.functions import Function, check_names, function_tool
from ..work.tools.tool import Tool
from .file_checks import check_listed
from .target import LoopAgent

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from ..work.models.python_model import Model
    from ..work.tools.registry import ToolRegistry

    R = TypeVar("R", default=Any)
else:
    from typing import TypeVar

    defer(globals(), {"..work.models.python_model": "Model", "..work.tools.registry": "ToolRegistry"})

    R = TypeVar("R")

_NAME = re.compile(r"\w[\w .-]*")
_FAMILIES = ("todo__", "agent__", "user__", "knowledge__")
_NEEDS_FILE = {"dynamic_instructions": "the instructions of an agent made in Python are its `instructions`"}


class Agent(AgentData, Generic[R], frozen=True, kw_only=True, dict=True):
    """Agent made in Python; see the module. Its other fields are the keys of a `config.yaml`.

    Attributes:
        can_ask_user: whether it is offered the tools that ask the user.
        tools: Python functions that only this agent may call.
        agents: the agents that it may spawn as children, by their names; no others.
        model: `client:model`, or a model made in Python (`callboard.Model`).
        result: the type of its answer: a dataclass, TypedDict, msgspec Struct or pydantic model, any other type that
            JSON can hold, or a JSON Schema. None for text.

    Raises:
        UsageError: fields have invalid values; the text names all of them.
    """

    can_ask_user: bool = False
    # The fields of a file are tuples. `__post_init__` converts what a program gives.
    global_tools: Sequence[str] = ()  # type: ignore[assignment]  # see above
    mcp_servers: Sequence[str] = ()  # type: ignore[assignment]  # see above
    documents: Sequence[str] = ()  # type: ignore[assignment]  # see above
    conversation_starters: Sequence[str] = ()  # type: ignore[assignment]  # see above
    spawnable_agents: Sequence[str] | None = None  # type: ignore[assignment]  # see above
    enabled_skills: Sequence[str] | None = None  # type: ignore[assignment]  # see above
    model: str | Model | None = None  # type: ignore[assignment]  # a text after `__post_init__`
    tools: Sequence[Function | Tool] = ()
    agents: Sequence[Agent[Any]] = ()
    result: type[R] | Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        """Check the fields. Convert lists to tuples, functions to tools, and a model made in Python to its name."""
        own, problem = _own_model(self)
        wrong = [problem] if problem else []
        wrong += [text for name, kind in _FIELDS if (text := _check(self, name, kind)) is not None]
        name: Any = self.name
        if isinstance(name, str) and not _NAME.fullmatch(name):
            wrong.append(f"name={name!r}: a name has letters, digits, '_', '-', '.' and spaces")
        wrong += [f"{name}={getattr(self, name)!r}: {why}" for name, why in _NEEDS_FILE.items() if getattr(self, name)]
        # All problems at once: a program that is corrected one error at a time is started once per error.
        for check in (self._check_tools, self._check_agents, self._check_result):
            try:
                check()
            except UsageError as error:
                wrong.append(str(error))
        if wrong:
            raise UsageError("\n".join([f"this callboard.Agent can't be made ({len(wrong)} problems):", *wrong]))
        # Built once and not once per run: an agent has fifty fields.
        below = {each.name: _alone(each) for each in family(self)}
        self.__dict__["models"] = models = _models(self, own)
        self.__dict__["loaded"] = loaded = msgspec.structs.replace(_alone(self), below=below, models=models)
        self.__dict__["names_others"] = any(map(_names_others, (loaded, *below.values())))

    def _check_tools(self) -> None:
        tools = tuple(each if isinstance(each, Tool) else function_tool(each) for each in _several(self, "tools"))
        check_names(tools)
        for tool in tools:
            # A function of this name would replace Callboard's tool, with its permissions and limits.
            if tool.name in SPECS:
                raise UsageError(
                    f"tools: '{tool.name}' is the name of a tool of Callboard; give the function another one with "
                    "callboard.function_tool(function, name='...')"
                )
            if tool.name.startswith(_FAMILIES):
                raise UsageError(f"tools: '{tool.name}' begins with a prefix that Callboard reserves for its own tools")
        force_setattr(self, "tools", tools)

    def _check_agents(self) -> None:
        agents = tuple(_several(self, "agents"))
        for each in agents:
            if not isinstance(each, Agent):
                raise UsageError(f"agents: {each!r} is not a callboard.Agent")
        force_setattr(self, "agents", agents)
        known: dict[str, Agent[Any]] = {self.name: self}
        for each in family(self):
            if known.setdefault(each.name, each) is not each:
                raise UsageError(f"agents: two agents have the name '{each.name}'")

    def _check_result(self) -> None:
        if self.result is not None:
            ResultType.of(self.result)

    @property
    def data(self) -> AgentData:
        """The agent as data: the fields that a `config.yaml` could have."""
        fields = {name: getattr(self, name) for name in AgentData.__struct_fields__}
        if self.agents:
            fields["can_spawn_agents"] = True
            if self.spawnable_agents is None:
                fields["spawnable_agents"] = tuple(each.name for each in self.agents)
        return AgentData(**fields)


_FIELDS = [(field.name, field.type) for field in msgspec.structs.fields(AgentData) if field.name != "source"]
_DEFAULTS = {field.name: field.default for field in msgspec.structs.fields(AgentData)}


def family(agent: Agent[Any]) -> Iterator[Agent[Any]]:
    """Yield the agent's children, and theirs."""
    for each in agent.agents:
        yield each
        yield from family(each)


def loop_agent(agent: Agent[Any]) -> LoopAgent:
    """Return the agent in the form that runs use."""
    loaded: LoopAgent = agent.__dict__["loaded"]
    return loaded


def models_of_agent(agent: Agent[Any]) -> Mapping[str, Model]:
    """Return the models made in Python of an agent and its descendants, by name."""
    models: Mapping[str, Model] = agent.__dict__["models"]
    return models


def joined(several: Iterable[Mapping[str, Model]]) -> Mapping[str, Model]:
    """Merge models made in Python by their names.

    Raises:
        UsageError: two models have the same name.
    """
    found: dict[str, Model] = {}
    for models in several:
        for name, model in models.items():
            if found.setdefault(name, model) is not model:
                raise UsageError(f"two models have the name '{name}'")
    return found


def _own_model(agent: Agent[Any]) -> tuple[Mapping[str, Model], str]:
    """Replace the agent's model by its name, if it was made in Python. Return it by its name, and an error or ""."""
    model: Any = agent.model
    if not hasattr(model, "request"):
        return {}, ""
    from ..work.models.python_model import by_name

    try:
        own = by_name((model,), "model")
    except UsageError as error:
        force_setattr(agent, "model", None)
        return {}, str(error)
    force_setattr(agent, "model", model.name)
    return own, ""


def _models(agent: Agent[Any], own: Mapping[str, Model]) -> Mapping[str, Model]:
    below = [models for each in agent.agents if (models := models_of_agent(each))]
    return joined((own, *below)) if below else own


def names_others(agent: Agent[Any]) -> bool:
    """Return whether the agent or a descendant names tools or MCP servers that may not exist; see `check_known`."""
    names: bool = agent.__dict__["names_others"]
    return names


def _names_others(agent: LoopAgent) -> bool:
    return bool(agent.agent.global_tools or agent.agent.mcp_servers or agent.agent.permissions)


def _alone(agent: Agent[Any]) -> LoopAgent:
    tools = tuple(tool for tool in agent.tools if isinstance(tool, Tool))
    result = None if agent.result is None else ResultType.of(agent.result)
    return msgspec.structs.replace(LoopAgent.of(agent.data), functions=tools, result=result)


def check_known(agent: Agent[Any], registry: ToolRegistry) -> None:
    """Check that the tools and MCP servers named by an agent and its descendants exist. Reads files.

    Raises:
        UsageError: one does not exist.
    """
    problems: list[Problem] = []
    made = loop_agent(agent)
    for each in (made, *made.below.values()):
        if _names_others(each):
            problems += check_listed(each.agent, [tool.name for tool in each.functions], registry)
    if problems:
        lines = [f"{problem.message}{f' ({problem.hint})' if problem.hint else ''}" for problem in problems]
        raise UsageError(f"agent '{agent.name}' can't run: {'; '.join(lines)}")


def _several(agent: Agent[Any], name: str) -> Sequence[Any]:
    value: Any = getattr(agent, name)
    if isinstance(value, str | Mapping) or not isinstance(value, Sequence):
        raise UsageError(f"{name}: expected a list, got {value!r}")
    return value


def _check(agent: Agent[Any], name: str, kind: Any) -> str | None:
    """Return an error in a field, or None. An equivalent value of another form is converted."""
    value = getattr(agent, name)
    default = _DEFAULTS[name]
    if value is default or (type(value) is str and kind is str):
        return None
    try:
        converted = convert(value, kind)
    except msgspec.ValidationError as error:
        shown = repr(value)
        return f"{name}={shown if len(shown) < 100 else f'{shown[:100]}...'}: {error}"
    if converted is not value:
        force_setattr(agent, name, converted)
    return None
