"""Loaded targets: read and checked in full. `finding` resolves names to files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from ...protocol.agent import Agent, draft_agent
from ...protocol.deferred_types import defer
from ...protocol.errors import InvalidFile, UsageError
from ...protocol.graph import Graph, read_graph
from ...protocol.problems import Problem, errors_in
from ...protocol.reading import in_file_order
from ...protocol.settings import read_settings, without_effect
from ...protocol.yaml_tree import parse_mapping
from ..engine.graph.compat import MODES
from ..engine.graph.findings import CheckContext
from ..io.directories import config_dir as configured
from ..io.directories import config_file
from ..io.tenancy import environ as process_environ
from ..work.library import AGENTS
from ..work.tools.registry import AICHAT_FILE, ToolRegistry, with_listed
from ..work.tools.tool import Tool
from .file_checks import (
    KnownModels,
    KnownServers,
    check_called,
    check_documents,
    check_inputs,
    check_listed,
    check_models,
    check_sampling,
    own_tools,
    registry_of,
)
from .finding import TargetFile, agents_near, find, text_of_problems

if TYPE_CHECKING:
    from ...protocol.workflow import Workflow
    from ..engine.graph.draw import Picture
    from ..engine.graph.plan import PlanStep
    from ..work.models.python_model import Model
    from ..work.results import ResultType
else:
    defer(
        globals(),
        {
            "...protocol.workflow": "Workflow",
            "..engine.graph.draw": "Picture",
            "..engine.graph.plan": "PlanStep",
            "..work.models.python_model": "Model",
            "..work.results": "ResultType",
        },
    )


class GraphAgent(msgspec.Struct, frozen=True, kw_only=True):
    """Graph agent that was read and has no errors; `problems` has its warnings.

    Attributes:
        compiled: its nodes ready to run, by dialect, from its first run on.
        made: True if a program made it. It then has no file and reads nothing from the environment.
        below: agents that it may call instead of agents in files, by name.
        models: models made in Python for it and for agents `below` it, by name.
    """

    name: str
    directory: Path
    file: str
    graph: Graph
    problems: tuple[Problem, ...] = ()
    compiled: dict[str, dict[str, PlanStep]] = {}
    made: bool = False
    below: dict[str, LoopAgent] = {}
    models: Mapping[str, Model] = {}

    @property
    def picture(self) -> Picture:
        """Drawing of the graph for `callboard graph`."""
        from ..engine.graph.draw import picture_of

        return picture_of(self.graph)


class LoopAgent(msgspec.Struct, frozen=True, kw_only=True):
    """LLM-loop agent that was read and has no errors; `problems` has its warnings.

    An agent made by a program, `LoopAgent.of(Agent(name="clerk", instructions="..."))`, has no directory and no file,
    and reads nothing from the environment.

    Attributes:
        functions: Python functions that only this agent may call, as tools.
        below: agents that it and its descendants may spawn instead of agents in files, by name.
        result: type of its answer; None for text.
        models: models made in Python for it and its descendants, by name.
    """

    name: str
    directory: Path | None
    file: str
    agent: Agent
    problems: tuple[Problem, ...] = ()
    functions: tuple[Tool, ...] = ()
    below: dict[str, LoopAgent] = {}
    result: ResultType | None = None
    models: Mapping[str, Model] = {}

    @classmethod
    def of(cls, agent: Agent, problems: Iterable[Problem] = ()) -> LoopAgent:
        """Return an agent that was made by a program."""
        file = f"agent '{agent.name}'"
        found = tuple(msgspec.structs.replace(problem, file=file) for problem in problems)
        return cls(name=agent.name, directory=None, file=file, agent=agent, problems=found)


class WorkflowAgent(msgspec.Struct, frozen=True, kw_only=True):
    """DevAll workflow that was read and has no errors; `problems` has its warnings."""

    name: str
    directory: Path
    file: str
    workflow: Workflow
    problems: tuple[Problem, ...] = ()

    @property
    def path(self) -> Path:
        """Path of the file, independent of the working directory."""
        return self.directory / Path(self.file).name

    @property
    def picture(self) -> Picture:
        """Drawing of the workflow for `callboard graph`."""
        from ..engine.workflow.picture import picture_of

        return picture_of(self.name, self.workflow.graph)


Loaded: TypeAlias = GraphAgent | LoopAgent | WorkflowAgent


def load(
    target: str | os.PathLike[str],
    *,
    strict: bool = False,
    config_dir: str | os.PathLike[str] | None = None,
    compat: str | None = None,
    variables: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Loaded:
    """Find, read and check a target.

    Args:
        target: an agent's name, an agent's directory, or a YAML file.
        strict: treat warnings as errors.
        config_dir: directory with `agents/`; see `directories.config_dir`.
        compat: dialect to check by, in place of the one that the file names.
        variables: values of `${NAME}` in a workflow; they override its `vars`.
        environ: the environment; by default that of the process.

    Raises:
        UsageError: the target does not exist.
        InvalidFile: it has errors; `problems` has all of them, and the warnings.
    """
    found = find(target, config_dir=config_dir, environ=environ)
    base, _ = configured(config_dir, process_environ() if environ is None else environ)
    return read(found, base, strict=strict, compat=compat, variables=variables)


def load_agent(
    target: str | os.PathLike[str], *, config_dir: str | os.PathLike[str] | None = None
) -> GraphAgent | LoopAgent:
    """Load a target that must be an agent, because the caller needs its variables, tools or knowledge.

    Raises:
        UsageError: it is a workflow.
    """
    agent = load(target, config_dir=config_dir)
    if isinstance(agent, WorkflowAgent):
        raise UsageError(f"{agent.file} is a workflow, but an agent is needed")
    return agent


def validate(
    target: str | os.PathLike[str],
    *,
    strict: bool = False,
    config_dir: str | os.PathLike[str] | None = None,
    compat: str | None = None,
    variables: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> list[Problem]:
    """Return all problems of a target, errors and warnings, in the file's order.

    The `config.yaml` of a configuration directory is also a target here. It is recognised as the one in use, or
    because it has `clients` and no `name`.

    Raises: `UsageError` as `load` does, and `InvalidFile` for a file that cannot be read at all.
    """
    try:
        found = find(target, config_dir=config_dir, environ=environ)
    except InvalidFile as error:
        if error.problems:
            return list(error.problems)
        raise
    base, _ = configured(config_dir, process_environ() if environ is None else environ)
    # Settings and agents share the name `config.yaml`, so the path and then the keys decide.
    is_used = found.directory / Path(found.file).name == config_file(base.absolute())
    if found.dialect == "agent" and (is_used or _has_settings(found)):
        return _problems_of_settings(found, strict=strict)
    problems = _check(found, base, strict=strict, compat=compat, variables=variables, models=True)[1]
    return list(problems) if strict else [_at_run_time(problem) for problem in problems]


def _at_run_time(problem: Problem) -> Problem:
    """Return a problem as a check without a run reports it.

    A missing environment variable is a warning, because it may be set before the run.
    """
    if problem.code != "unknown_variable":
        return problem
    return msgspec.structs.replace(problem, severity="warning")


def _has_settings(found: TargetFile) -> bool:
    root, _ = parse_mapping(found.text, found.file)
    return root is not None and "clients" in root.entries and "name" not in root.entries


def _problems_of_settings(found: TargetFile, *, strict: bool) -> list[Problem]:
    """Check the user's `config.yaml`."""
    settings, problems = read_settings(found.text, found.file, process_environ())
    return in_file_order([*problems, *without_effect(settings, found.text)], strict=strict)


def read(
    found: TargetFile,
    base: Path,
    *,
    strict: bool = False,
    compat: str | None = None,
    functions: Sequence[str] = (),
    registry: ToolRegistry | None = None,
    variables: Mapping[str, str] | None = None,
) -> Loaded:
    """Read and check a file that was found, and return its agent or workflow.

    Args:
        base: the configuration directory.
        functions: names of tools that the caller adds.
        registry: the global tools; None to search for them in `base`.
        variables: see `load`.

    Raises:
        InvalidFile: the file has errors. A graph with `validate_before_run: false` is returned in spite of them.
    """
    thing, problems = _check(
        found, base, strict=strict, compat=compat, functions=functions, registry=registry, variables=variables
    )
    if thing is None and found.dialect == "graph":
        # `validate_before_run: false` in the file: run the graph in spite of its errors.
        unchecked, _ = read_graph(found.text, found.file)
        if unchecked is not None and not unchecked.settings.validate_before_run:
            thing, problems = unchecked, []
    about: dict[str, Any] = {"directory": found.directory, "file": found.file, "problems": tuple(problems)}
    if isinstance(thing, Graph):
        return GraphAgent(name=thing.name, graph=thing, **about)
    if isinstance(thing, Agent):
        return LoopAgent(name=thing.name, agent=thing, **about)
    if thing is not None:
        return WorkflowAgent(name=thing.graph.id or Path(found.file).stem, workflow=thing, **about)
    if found.dialect == "graph":
        from ..engine.graph.validate import failure_text

        raise InvalidFile(failure_text(problems), problems)
    raise InvalidFile(text_of_problems(problems, found.file), problems)


def _check(
    found: TargetFile,
    base: Path,
    *,
    strict: bool,
    compat: str | None,
    functions: Sequence[str] = (),
    registry: ToolRegistry | None = None,
    variables: Mapping[str, str] | None = None,
    models: bool = False,
) -> tuple[Graph | Agent | Workflow | None, list[Problem]]:
    """Return the contents, or None if they have errors, and all problems.

    Args:
        models: whether models are checked as well. A run checks them itself when it knows which of them it uses.
    """
    registry = registry or registry_of(base)
    near = (base / "agents", found.directory.parent, AGENTS)
    if found.dialect == "workflow":
        from .devall_loader import read_flow

        workflow, of_flow = read_flow(
            found.text,
            found.file,
            found.directory,
            variables=variables or {},
            settings=registry.settings,
            strict=strict,
            compat=compat,
            parts=found.parts,
        )
        called: list[Problem] = []
        if workflow is not None:
            called = check_called(workflow, near, found.directory, process_environ())
            if models:
                of_flow += check_sampling(workflow)
        return (None if errors_in(called) else workflow), in_file_order([*of_flow, *called], strict=strict)
    own, of_tools = own_tools(found.directory)
    own = [*own, *functions]
    servers = KnownServers(base, registry.settings)
    known = KnownModels(registry.settings) if models else None
    thing: Agent | Graph | None
    if found.dialect == "agent":
        thing, problems = _drafted(found, strict=strict)
    else:
        from ..engine.graph.validate import check_draft

        around = CheckContext(
            directory=found.directory,
            agents=agents_near(found.directory, base),
            models=None if known is None else known.why_not,
            own_tools=own,
            spelled_out=registry.spelled_out,
            servers=servers,
        )
        rules = None if compat is None else MODES.get(compat)
        thing, problems = check_draft(found.text, found.file, around, compat=rules, strict=strict)
    if thing is not None:  # A file with errors is checked further, so that they do not hide the problems of its tools.
        silent = compat in MODES and MODES[compat].missing_servers_are_silent
        listed = check_listed(thing, own, registry, servers, silent=silent)
        of_tools = [*of_tools, *listed, *check_documents(thing, found.directory)]
        if isinstance(thing, Graph):
            mode = MODES.get(compat or "") or MODES[thing.settings.compat]
            of_tools += check_inputs(
                thing, near, found.directory, process_environ(), only_warn=mode.extra_checks_only_warn
            )
        if known is not None:
            of_tools += [*check_models(thing, known), *check_sampling(thing)]
    everything = [*problems, *of_tools]
    here = [problem for problem in everything if problem.file == found.file]
    elsewhere = [problem for problem in everything if problem.file != found.file]
    problems = [*in_file_order(here, strict=strict), *in_file_order(elsewhere, strict=strict)]
    return (None if errors_in(problems) else thing), problems


def _drafted(found: TargetFile, *, strict: bool) -> tuple[Agent | None, list[Problem]]:
    agent, problems = draft_agent(found.text, found.file, strict=strict)
    if agent is not None and Path(found.file).name == AICHAT_FILE:
        agent = with_listed(agent, found.directory)
    return agent, problems
