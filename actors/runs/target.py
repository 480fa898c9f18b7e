"""Targets as they are loaded: read and checked in full. `finding` says which file a name means."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from ...protocol.agent import Agent, draft_agent
from ...protocol.errors import InvalidFile, UsageError
from ...protocol.graph.model import Graph
from ...protocol.graph.read import read_graph
from ...protocol.problems import Problem, errors_in
from ...protocol.reading import in_file_order
from ...protocol.settings import read_settings, without_effect
from ...protocol.source import parse_mapping
from ..engine.graph.compat import MODES
from ..engine.graph.findings import Surroundings
from ..engine.graph.validate import check_draft, failure_text
from ..io.directories import config_dir as configured
from ..io.directories import config_file
from ..work.agent.aichat import INDEX, with_listed
from ..work.tools.registry import ToolRegistry
from .file_checks import KnownModels, KnownServers, check_documents, check_listed, check_models, own_tools, registry_of
from .finding import Found, agents_near, find, text_of_problems

if TYPE_CHECKING:
    from ...protocol.workflow import Workflow
    from ..engine.graph.picture import Picture
    from ..engine.graph.plan import Step


class GraphAgent(msgspec.Struct, frozen=True, kw_only=True):
    """A graph agent that was read and found free of errors; `problems` are its warnings.

    `compiled` keeps its nodes ready to run, per dialect, from its first run on.
    """

    name: str
    directory: Path
    file: str
    graph: Graph
    problems: tuple[Problem, ...] = ()
    compiled: dict[str, dict[str, Step]] = {}

    @property
    def picture(self) -> Picture:
        """What `callboard graph` draws."""
        from ..engine.graph.picture import picture_of

        return picture_of(self.graph)


class LoopAgent(msgspec.Struct, frozen=True, kw_only=True):
    """An LLM-loop agent that was read and found free of errors; `problems` are its warnings.

    One that a program has made, `LoopAgent.of(Agent(name="clerk", instructions="..."))`, has no directory and no file.
    """

    name: str
    directory: Path | None
    file: str
    agent: Agent
    problems: tuple[Problem, ...] = ()

    @classmethod
    def of(cls, agent: Agent, problems: Iterable[Problem] = ()) -> LoopAgent:
        """An agent that was made, not read."""
        file = f"agent '{agent.name}'"
        found = tuple(msgspec.structs.replace(problem, file=file) for problem in problems)
        return cls(name=agent.name, directory=None, file=file, agent=agent, problems=found)


class WorkflowAgent(msgspec.Struct, frozen=True, kw_only=True):
    """A DevAll workflow that was read and found free of errors; `problems` are its warnings."""

    name: str
    directory: Path
    file: str
    workflow: Workflow
    problems: tuple[Problem, ...] = ()

    @property
    def path(self) -> Path:
        """The file, wherever we stand."""
        return self.directory / Path(self.file).name

    @property
    def picture(self) -> Picture:
        """What `callboard graph` draws."""
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
        strict: warnings are errors.
        config_dir: where agents live; see `directories.config_dir`.
        compat: checks by these rules instead of those the file names.
        variables: what `${NAME}` stands for in a workflow, before what its `vars` say.
        environ: the environment; by default the process's own.

    Raises:
        UsageError: there is no such target.
        InvalidFile: it has errors; `problems` holds all of them, and the warnings.
    """
    found = find(target, config_dir=config_dir, environ=environ)
    base, _ = configured(config_dir, os.environ if environ is None else environ)
    return read(found, base, strict=strict, compat=compat, variables=variables)


def load_agent(
    target: str | os.PathLike[str], *, config_dir: str | os.PathLike[str] | None = None
) -> GraphAgent | LoopAgent:
    """As `load`, for what only agents have: variables, tools, knowledge.

    Raises:
        UsageError: it is a workflow.
    """
    agent = load(target, config_dir=config_dir)
    if isinstance(agent, WorkflowAgent):
        raise UsageError(f"{agent.file} is a workflow, and an agent is wanted")
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
    """All problems of a target, errors and warnings, in the file's order.

    The `config.yaml` of a configuration directory is a target here, too: of the one that is used, and any that has
    `clients` and no `name`, as no agent has.

    Raises: `UsageError` as `load` does, and `InvalidFile` for a file that can't be read at all.
    """
    try:
        found = find(target, config_dir=config_dir, environ=environ)
    except InvalidFile as error:
        if error.problems:
            return list(error.problems)
        raise
    base, _ = configured(config_dir, os.environ if environ is None else environ)
    is_used = found.directory / Path(found.file).name == config_file(base.absolute())
    if found.dialect == "agent" and (is_used or _has_settings(found)):
        return _problems_of_settings(found, strict=strict)
    return list(_check(found, base, strict=strict, compat=compat, variables=variables, models=True)[1])


def _has_settings(found: Found) -> bool:
    root, _ = parse_mapping(found.text, found.file)
    return root is not None and "clients" in root.entries and "name" not in root.entries


def _problems_of_settings(found: Found, *, strict: bool) -> list[Problem]:
    """Of the user's own `config.yaml`, which is no agent."""
    settings, problems = read_settings(found.text, found.file, os.environ)
    return in_file_order([*problems, *without_effect(settings, found.text)], strict=strict)


def read(
    found: Found,
    base: Path,
    *,
    strict: bool = False,
    compat: str | None = None,
    functions: Sequence[str] = (),
    registry: ToolRegistry | None = None,
    variables: Mapping[str, str] | None = None,
) -> Loaded:
    """The agent or workflow in a file that was found.

    Args:
        base: the configuration directory.
        functions: names of tools that the caller brings along.
        registry: the global tools; None to look for them in `base`.
        variables: see `load`.
    """
    thing, problems = _check(
        found, base, strict=strict, compat=compat, functions=functions, registry=registry, variables=variables
    )
    if thing is None and found.dialect == "graph":
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
    text = failure_text(problems) if found.dialect == "graph" else text_of_problems(problems, found.file)
    raise InvalidFile(text, problems)


def _check(
    found: Found,
    base: Path,
    *,
    strict: bool,
    compat: str | None,
    functions: Sequence[str] = (),
    registry: ToolRegistry | None = None,
    variables: Mapping[str, str] | None = None,
    models: bool = False,
) -> tuple[Graph | Agent | Workflow | None, list[Problem]]:
    """What was read, None if it has errors, and all problems.

    Args:
        models: whether models are looked for as well. A run does that by itself, once it knows which of them it asks.
    """
    registry = registry or registry_of(base)
    if found.dialect == "workflow":
        from .flows import read_flow

        return read_flow(
            found.text,
            found.file,
            found.directory,
            variables=variables or {},
            settings=registry.settings,
            strict=strict,
            compat=compat,
            parts=found.parts,
        )
    own, of_tools = own_tools(found.directory)
    own = [*own, *functions]
    servers = KnownServers(base, registry.settings)
    known = KnownModels(registry.settings) if models else None
    thing: Agent | Graph | None
    if found.dialect == "agent":
        thing, problems = _drafted(found, strict=strict)
    else:
        near = agents_near(found.directory, base)
        around = Surroundings(
            directory=found.directory,
            agents=near,
            models=None if known is None else known.why_not,
            own_tools=own,
            spelled_out=registry.spelled_out,
            servers=servers,
        )
        rules = None if compat is None else MODES.get(compat)
        thing, problems = check_draft(found.text, found.file, around, compat=rules, strict=strict)
    if thing is not None:  # also of what has errors, so that they don't hide these
        silent = compat in MODES and MODES[compat].missing_servers_are_silent
        listed = check_listed(thing, own, registry, servers, silent=silent)
        of_tools = [*of_tools, *listed, *check_documents(thing, found.directory)]
        if known is not None:
            of_tools += check_models(thing, known)
    everything = [*problems, *of_tools]
    here = [problem for problem in everything if problem.file == found.file]
    elsewhere = [problem for problem in everything if problem.file != found.file]
    problems = [*in_file_order(here, strict=strict), *in_file_order(elsewhere, strict=strict)]
    return (None if errors_in(problems) else thing), problems


def _drafted(found: Found, *, strict: bool) -> tuple[Agent | None, list[Problem]]:
    agent, problems = draft_agent(found.text, found.file, strict=strict)
    if agent is not None and Path(found.file).name == INDEX:
        agent = with_listed(agent, found.directory)
    return agent, problems
