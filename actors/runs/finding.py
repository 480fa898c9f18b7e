"""Target lookup: from the name that a user types to the agent's file.

A target is the name of an agent in the configuration directory (`agents/<name>/`), the name of a built-in agent, an
agent's directory, or a YAML file. A directory has either a `graph.yaml` or a `config.yaml`, or aichat's `index.yaml`.
The content of a file with another name decides: a mapping with `nodes` is a graph, one with a mapping `graph` is a
DevAll workflow.

A bare name means such an agent first. A file of the working directory is only used if no agent has the name. So
`coder` is the same agent in every directory, even inside a foreign repository that has a `coder/`. A path is never a
name: `./coder`, `coder.yaml`, a `Path`. `CODER_CONFIG_FILE` in the environment names another file for the agent
`coder`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from ...protocol.errors import InvalidFile, UsageError
from ...protocol.other_programs import foreign_markdown, foreign_yaml, problem_of
from ...protocol.problems import Problem, did_you_mean, errors_in, suggestion
from ...protocol.tree import Mapping as YamlMapping
from ...protocol.tree import Scalar
from ...protocol.yaml_tree import parse_mapping
from ..engine.graph.findings import AgentSeen, agents_in
from ..io.directories import config_dir as configured
from ..io.file_fingerprints import record_read
from ..io.tenancy import environ as process_environ
from ..work.library import AGENTS
from ..work.tools.registry import AICHAT_FILE
from ..work.variables import named_file_of

Dialect = Literal["graph", "agent", "workflow"]
_BY_NAME: dict[str, Dialect] = {"config.yaml": "agent", "graph.yaml": "graph"}


class TargetFile(msgspec.Struct, frozen=True, kw_only=True):
    """File of a target.

    Attributes:
        dialect: `graph` (graph.yaml), `agent` (config.yaml) or `workflow` (DevAll).
        file: path as the user would type it.
        directory: the agent's directory.
        text: contents of the file.
        parts: texts of its subgraph files, by absolute path, if they are known; otherwise they are read.
    """

    dialect: Dialect
    file: str
    directory: Path
    text: str
    parts: Mapping[str, str] = {}


def find(
    target: str | os.PathLike[str],
    *,
    config_dir: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> TargetFile:
    """Return the file of a target.

    Raises:
        UsageError: no target has this name.
        InvalidFile: the directory has no agent, or two, or the file cannot be read.
    """
    name = os.fspath(target)
    base, _ = configured(config_dir, process_environ() if environ is None else environ)
    if not name:
        raise UsageError("the target is empty; name an agent, an agent's directory or a YAML file")
    try:
        if "\0" in name:
            raise ValueError
        home = _home(name, base) if isinstance(target, str) else None
        path = Path(name).expanduser() if home is None else home
        is_file, is_directory = home is None and record_read(path).is_file(), path.is_dir()
    except (OSError, RuntimeError, ValueError) as error:  # too long, no such home, or a zero byte
        why = getattr(error, "strerror", None) or "it is not a valid path"
        raise UsageError(f"no such target: {name[:60]!r} is neither an agent nor a file ({why})") from None
    if is_file:
        return _in_file(path, str(path))
    if is_directory:
        own = None if home is None else named_file_of(name, process_environ() if environ is None else environ)
        return _in_directory(path, name) if own is None else _agent_with_file(own, path)
    raise UsageError(_not_found(name, base)).for_readers("read:agents", f"there is no agent {name[:60]!r}")


def is_installed(name: str, base: Path) -> bool:
    """Return whether the configuration directory `base` or the library has an agent of this name. Paths never match."""
    try:
        return bool(name) and _home(name, base) is not None
    except (OSError, ValueError):  # no file can have such a name
        return False


def _home(name: str, base: Path) -> Path | None:
    """Return the directory of the agent with this name; None if no agent has it, or if it is a path."""
    if os.sep in name or name in (".", "..") or name.endswith((".yaml", ".yml")):
        return None
    own = base / "agents" / name
    if record_read(own).is_dir():
        return own
    return AGENTS / name if name in built_in_agents() else None


def named_file(name: str, near: Path) -> Path | None:
    """Return the path of `name` in the directory `near` if it is a YAML file there, else None.

    An agent node may name such a file, usually a workflow, in place of an agent.
    """
    return near / name if name.endswith((".yaml", ".yml")) and record_read(near / name).is_file() else None


def agents_near(directory: Path, base: Path) -> Callable[[str], AgentSeen]:
    """Return a lookup of the names that a graph in `directory` can call.

    It searches in this order: a YAML file in `directory`, the agents of the configuration directory `base`, the
    directories beside `directory`, the built-in agents.
    """
    places = [agents_in(place) for place in (base / "agents", directory.parent, AGENTS)]

    def seen(name: str) -> AgentSeen:
        if named_file(name, directory) is not None:
            return "found"
        found = (place(name) for place in places)
        return next((known for known in found if known != "missing"), "missing")

    return seen


def own_agents(base: Path) -> list[str]:
    """Return the names of the agents in a configuration directory."""
    home = base / "agents"
    if not home.is_dir():
        return []
    return sorted(path.name for path in home.iterdir() if path.is_dir() and not path.name.startswith("."))


def built_in_agents() -> list[str]:
    """Return the names of the agents that come with Callboard."""
    return sorted(path.name for path in AGENTS.iterdir() if path.is_dir() and _agent_files(path))


def description_of(name: str, base: Path) -> str:
    """Return the `description` in an agent's file, or "" if it cannot be read.

    The file may have other problems; the run of the agent reports them.
    """
    home = _home(name, base)
    files = _agent_files(home) if home is not None else []
    try:
        root = parse_mapping(_text(files[0], name), name)[0] if files else None
    except InvalidFile:
        return ""
    said = root.entries.get("description") if root is not None else None
    return " ".join(said.value.text.split()) if said is not None and isinstance(said.value, Scalar) else ""


def _in_file(path: Path, shown: str) -> TargetFile:
    text = _text(path, shown)
    dialect = _BY_NAME.get(path.name)
    if dialect is None:
        foreign = foreign_markdown(text, path.name) if path.suffix == ".md" else None
        root, problems = (None, []) if foreign is not None else parse_mapping(text, shown)
        if root is not None:
            foreign = foreign_yaml(root)
        if foreign is not None:
            problems = [problem_of(foreign, shown)]
        if root is None or foreign is not None:
            raise InvalidFile(text_of_problems(problems, shown), problems)
        dialect = _dialect(root)
    return TargetFile(dialect=dialect, file=shown, directory=path.absolute().parent, text=text)


def _agent_with_file(named: str, directory: Path) -> TargetFile:
    """Return the agent in `directory` with another file in place of its own."""
    return msgspec.structs.replace(_in_file(Path(named).expanduser(), named), directory=directory.absolute())


def _dialect(root: YamlMapping) -> Dialect:
    keys = root.entries
    if "nodes" in keys or "start" in keys:
        return "graph"
    if "graph" in keys and isinstance(keys["graph"].value, YamlMapping):
        return "workflow"
    return "agent"


def _in_directory(path: Path, name: str) -> TargetFile:
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
    found = [path / name for name in _BY_NAME if record_read(path / name).is_file()]
    return found or [path / name for name in (AICHAT_FILE,) if record_read(path / name).is_file()]


def _text(path: Path, shown: str) -> str:
    try:
        return record_read(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InvalidFile(f"{shown} is not UTF-8 text: {error}") from error
    except OSError as error:
        raise InvalidFile(f"Failed to read {shown}: {error.strerror or error}") from error


def _not_found(name: str, base: Path) -> str:
    agents = base / "agents"
    if os.sep in name or name.endswith((".yaml", ".yml")):
        return _no_such_file(Path(name).expanduser(), name)
    known = own_agents(base)
    known += [each for each in built_in_agents() if each not in known]
    near = did_you_mean(name, known)
    text = f"no such target: {name!r} is neither a YAML file, nor an agent's directory, nor an agent in {agents}"
    if near:
        return f"{text}; {near}"
    return f"{text} (there are: {', '.join(known)})" if known else text


def _no_such_file(path: Path, name: str) -> str:
    from difflib import get_close_matches

    if path.exists():
        return f"'{name}' exists, but is neither a file nor a directory"
    there = path.parent
    if not there.is_dir():
        return f"the file '{name}' does not exist, because there is no directory '{there}'"
    try:
        names = {entry.stem: entry.name for entry in sorted(there.iterdir())}
    except OSError:
        names = {}
    near = get_close_matches(path.stem, names, n=1)
    return f"the file '{name}' does not exist" + (f"; {suggestion(names[near[0]])}" if near else "")


def text_of_problems(problems: Sequence[Problem], file: str) -> str:
    """Return `failure_text` for files that are not graphs. Loki's headline speaks of a graph, so it is replaced."""
    from ..engine.graph.validate import failure_text

    _, *lines = failure_text(problems).splitlines()
    return "\n".join([f"{len(errors_in(problems))} error(s) in {file}:", *lines])
