"""Targets: what the user names, and the agent that is found there.

A target is the name of an agent in the configuration directory (`agents/<name>/`) or of a built-in one, an agent's
directory, or a YAML file. A directory holds either a `graph.yaml` or a `config.yaml`. In a file of another name
the content decides: a mapping with `nodes` is a graph, one with a mapping `graph` is a DevAll workflow.

A bare name means those agents first, and a file of the working directory only if there is none: `coder` is the same
agent in every directory, also inside of a foreign repository that has a `coder/`. A path is never a name: `./coder`,
`coder.yaml`, a `Path`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from ...protocol.agent import Agent, draft_agent
from ...protocol.errors import InvalidFile, UsageError
from ...protocol.graph import Graph, read_graph
from ...protocol.problems import Problem, did_you_mean, errors_in
from ...protocol.reading import in_file_order
from ...protocol.settings import read_settings, without_effect
from ...protocol.source import Mapping as YamlMapping
from ...protocol.source import parse_mapping
from ..engine.graph.compat import MODES
from ..engine.graph.findings import AgentSeen, Surroundings, agents_in
from ..engine.graph.validate import check_draft, failure_text
from ..io.directories import config_dir as configured
from ..io.stamps import look
from ..work.library import AGENTS
from ..work.tools.collect import Shelf
from .document_checks import check_documents
from .model_checks import KnownModels, check_models
from .tool_checks import KnownServers, check_listed, own_tools, shelf_of

if TYPE_CHECKING:
    from ...protocol.workflow import Workflow
    from ..engine.graph.picture import Picture

Dialect = Literal["graph", "agent", "workflow"]


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A target's file.

    Attributes:
        dialect: `graph` (graph.yaml), `agent` (config.yaml) or `workflow` (DevAll).
        file: path as the user would type it.
        directory: the agent's directory.
        text: what the file says.
    """

    dialect: Dialect
    file: str
    directory: Path
    text: str


class GraphAgent(msgspec.Struct, frozen=True, kw_only=True):
    """A graph agent that was read and found free of errors; `problems` are its warnings."""

    name: str
    directory: Path
    file: str
    graph: Graph
    problems: tuple[Problem, ...] = ()

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

    The `config.yaml` of the configuration directory itself is a target here, too.

    Raises: `UsageError` as `load` does, and `InvalidFile` for a file that can't be read at all.
    """
    try:
        found = find(target, config_dir=config_dir, environ=environ)
    except InvalidFile as error:
        if error.problems:
            return list(error.problems)
        raise
    base, _ = configured(config_dir, os.environ if environ is None else environ)
    if found.dialect == "agent" and (found.directory, Path(found.file).name) == (base.absolute(), "config.yaml"):
        return _problems_of_settings(found, strict=strict)
    return list(_check(found, base, strict=strict, compat=compat, variables=variables, models=True)[1])


def _problems_of_settings(found: Found, *, strict: bool) -> list[Problem]:
    """Of the user's own `config.yaml`, which is no agent."""
    settings, problems = read_settings(found.text, found.file, os.environ)
    return in_file_order([*problems, *without_effect(settings, found.text)], strict=strict)


def find(
    target: str | os.PathLike[str],
    *,
    config_dir: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Found:
    """The file that a target means.

    Raises:
        UsageError: there is none.
        InvalidFile: the directory holds no agent, or two, or the file can't be read.
    """
    name = os.fspath(target)
    base, _ = configured(config_dir, os.environ if environ is None else environ)
    if not name:
        raise UsageError("the target is empty; name an agent, an agent's directory or a YAML file")
    home = _home(name, base) if isinstance(target, str) else None
    if home is not None:
        return _in_directory(home, name)
    path = Path(name).expanduser()
    if look(path).is_file():
        return _in_file(path, str(path))
    if path.is_dir():
        return _in_directory(path, name)
    raise UsageError(_not_found(name, base))


def is_installed(name: str, base: Path) -> bool:
    """Whether `base`, the configuration directory, or the library has an agent of this name: no path, no file."""
    try:
        return bool(name) and _home(name, base) is not None
    except (OSError, ValueError):  # no file can have such a name
        return False


def _home(name: str, base: Path) -> Path | None:
    """The directory of the agent with this name; None if there is none, or it is a path and no name."""
    if os.sep in name or name in (".", "..") or name.endswith((".yaml", ".yml")):
        return None
    own = base / "agents" / name
    if look(own).is_dir():
        return own
    return AGENTS / name if name in built_in_agents() else None


def read(
    found: Found,
    base: Path,
    *,
    strict: bool = False,
    compat: str | None = None,
    functions: Sequence[str] = (),
    shelf: Shelf | None = None,
    variables: Mapping[str, str] | None = None,
) -> Loaded:
    """The agent or workflow in a file that was found.

    Args:
        base: the configuration directory.
        functions: names of tools that the caller brings along.
        shelf: the global tools; None to look for them in `base`.
        variables: see `load`.
    """
    thing, problems = _check(
        found, base, strict=strict, compat=compat, functions=functions, shelf=shelf, variables=variables
    )
    if thing is None and found.dialect == "graph":
        unchecked, _ = read_graph(found.text, found.file)
        if unchecked is not None and not unchecked.settings.validate_before_run:
            thing, problems = unchecked, []
    if isinstance(thing, Graph):
        return GraphAgent(
            name=thing.name, directory=found.directory, file=found.file, graph=thing, problems=tuple(problems)
        )
    if isinstance(thing, Agent):
        return LoopAgent(
            name=thing.name, directory=found.directory, file=found.file, agent=thing, problems=tuple(problems)
        )
    if thing is not None:
        return WorkflowAgent(
            name=thing.graph.id or Path(found.file).stem,
            directory=found.directory,
            file=found.file,
            workflow=thing,
            problems=tuple(problems),
        )
    text = failure_text(problems) if found.dialect == "graph" else _failure_text(problems, found.file)
    raise InvalidFile(text, problems)


def _failure_text(problems: Sequence[Problem], file: str) -> str:
    """`failure_text` for what is no graph: its headline is Loki's and speaks of one."""
    _, *lines = failure_text(problems).splitlines()
    return "\n".join([f"{len(errors_in(problems))} error(s) in {file}:", *lines])


def _check(
    found: Found,
    base: Path,
    *,
    strict: bool,
    compat: str | None,
    functions: Sequence[str] = (),
    shelf: Shelf | None = None,
    variables: Mapping[str, str] | None = None,
    models: bool = False,
) -> tuple[Graph | Agent | Workflow | None, list[Problem]]:
    """What was read, None if it has errors, and all problems.

    Args:
        models: whether models are looked for as well. A run does that by itself, once it knows which of them it asks.
    """
    shelf = shelf or shelf_of(base)
    if found.dialect == "workflow":
        from .flows import read_flow

        return read_flow(
            found.text,
            found.file,
            found.directory,
            variables=variables or {},
            settings=shelf.settings,
            strict=strict,
            compat=compat,
        )
    own, of_tools = own_tools(found.directory)
    own = [*own, *functions]
    servers = KnownServers(base, shelf.settings)
    known = KnownModels(shelf.settings) if models else None
    thing: Agent | Graph | None
    if found.dialect == "agent":
        thing, problems = draft_agent(found.text, found.file, strict=strict)
    else:
        near = agents_near(found.directory, base)
        around = Surroundings(
            directory=found.directory,
            agents=near,
            models=None if known is None else known.chat,
            own_tools=own,
            spelled_out=shelf.spelled_out,
            servers=servers,
        )
        rules = None if compat is None else MODES.get(compat)
        thing, problems = check_draft(found.text, found.file, around, compat=rules, strict=strict)
    if thing is not None:  # also of what has errors, so that they don't hide these
        silent = compat in MODES and MODES[compat].missing_servers_are_silent
        listed = check_listed(thing, own, shelf, servers, silent=silent)
        of_tools = [*of_tools, *listed, *check_documents(thing, found.directory)]
        if known is not None:
            of_tools += check_models(thing, known)
    everything = [*problems, *of_tools]
    here = [problem for problem in everything if problem.file == found.file]
    elsewhere = [problem for problem in everything if problem.file != found.file]
    problems = [*in_file_order(here, strict=strict), *in_file_order(elsewhere, strict=strict)]
    return (None if errors_in(problems) else thing), problems


def named_file(name: str, near: Path) -> Path | None:
    """The YAML file that the author of a file in the directory `near` names instead of an agent: a workflow, mostly."""
    return near / name if name.endswith((".yaml", ".yml")) and look(near / name).is_file() else None


def agents_near(directory: Path, base: Path) -> Callable[[str], AgentSeen]:
    """Looks for an agent: a file of that name, the configuration directory, beside who calls it, the built-in ones."""
    places = [agents_in(place) for place in (base / "agents", directory.parent, AGENTS)]

    def seen(name: str) -> AgentSeen:
        if named_file(name, directory) is not None:
            return "found"
        found = (place(name) for place in places)
        return next((known for known in found if known != "missing"), "missing")

    return seen


def built_in_agents() -> list[str]:
    """Names of the agents that come with Callboard."""
    return sorted(path.name for path in AGENTS.iterdir() if path.is_dir() and _agent_files(path))


def _in_file(path: Path, shown: str) -> Found:
    text = _text(path, shown)
    directory = path.absolute().parent
    if path.name == "graph.yaml":
        return Found(dialect="graph", file=shown, directory=directory, text=text)
    if path.name == "config.yaml":
        return Found(dialect="agent", file=shown, directory=directory, text=text)
    root, problems = parse_mapping(text, shown)
    if root is None:
        raise InvalidFile(_failure_text(problems, shown), problems)
    return Found(dialect=_dialect(root), file=shown, directory=directory, text=text)


def _dialect(root: YamlMapping) -> Dialect:
    keys = root.entries
    if "nodes" in keys or "start" in keys:
        return "graph"
    if "graph" in keys and isinstance(keys["graph"].value, YamlMapping):
        return "workflow"
    return "agent"


def _in_directory(path: Path, name: str) -> Found:
    files = _agent_files(path)
    if len(files) == 2:
        raise InvalidFile(
            f"Agent '{path.name}' has both config.yaml and graph.yaml. An agent is either an LLM loop (config.yaml) "
            "or a graph (graph.yaml). Remove one of the two files."
        )
    if not files:
        raise InvalidFile(f"Agent '{name}' has neither a config.yaml nor a graph.yaml at '{path}'")
    return _in_file(files[0], str(files[0]))


def _agent_files(path: Path) -> list[Path]:
    return [path / name for name in ("config.yaml", "graph.yaml") if look(path / name).is_file()]


def _text(path: Path, shown: str) -> str:
    try:
        return look(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InvalidFile(f"{shown} is not UTF-8 text: {error}") from error
    except OSError as error:
        raise InvalidFile(f"Failed to read {shown}: {error.strerror or error}") from error


def _not_found(name: str, base: Path) -> str:
    agents = base / "agents"
    if os.sep in name or name.endswith((".yaml", ".yml")):
        return _no_such_file(Path(name).expanduser(), name)
    known = sorted(path.name for path in agents.iterdir() if path.is_dir()) if agents.is_dir() else []
    known += [each for each in built_in_agents() if each not in known]
    near = did_you_mean(name, known)
    text = f"no such target: '{name}' is neither a YAML file, nor an agent's directory, nor an agent in {agents}"
    if near:
        return f"{text}; {near}"
    return f"{text} (there are: {', '.join(known)})" if known else text


def _no_such_file(path: Path, name: str) -> str:
    """For what can only be a path: that it is not there, and what is there instead."""
    if path.exists():
        return f"'{name}' is neither a file nor a directory"
    there = path.parent
    if not there.is_dir():
        return f"the file '{name}' does not exist: there is no directory '{there}'"
    try:
        names = {entry.stem: entry.name for entry in sorted(there.iterdir())}
    except OSError:
        names = {}
    near = get_close_matches(path.stem, names, n=1)
    return f"the file '{name}' does not exist" + (f"; did you mean '{names[near[0]]}'?" if near else "")
