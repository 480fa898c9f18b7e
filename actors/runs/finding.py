"""Targets: what the user names, and the agent that is found there.

A target is the name of an agent in the configuration directory (`agents/<name>/`) or of a built-in one, an agent's
directory, or a YAML file. A directory holds either a `graph.yaml` or a `config.yaml`, or aichat's `index.yaml`. In a
file of another name the content decides: a mapping with `nodes` is a graph, one with a mapping `graph` is a DevAll
workflow.

A bare name means those agents first, and a file of the working directory only if there is none: `coder` is the same
agent in every directory, also inside of a foreign repository that has a `coder/`. A path is never a name: `./coder`,
`coder.yaml`, a `Path`. `CODER_CONFIG_FILE` in the environment names another file for the agent `coder`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Literal

import msgspec

from ...protocol.errors import InvalidFile, UsageError
from ...protocol.problems import Problem, did_you_mean, errors_in, suggestion
from ...protocol.source import parse_mapping
from ...protocol.tree import Mapping as YamlMapping
from ...protocol.tree import Scalar
from ..engine.graph.findings import AgentSeen, agents_in
from ..engine.graph.validate import failure_text
from ..io.directories import config_dir as configured
from ..io.stamps import look
from ..work.agent.aichat import INDEX
from ..work.library import AGENTS
from ..work.variables import named_file_of

Dialect = Literal["graph", "agent", "workflow"]
_BY_NAME: dict[str, Dialect] = {"config.yaml": "agent", "graph.yaml": "graph"}


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A target's file.

    Attributes:
        dialect: `graph` (graph.yaml), `agent` (config.yaml) or `workflow` (DevAll).
        file: path as the user would type it.
        directory: the agent's directory.
        text: what the file says.
        parts: texts of other files that it consists of, by absolute path, where they are known; else they are read.
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
    try:
        if "\0" in name:
            raise ValueError
        home = _home(name, base) if isinstance(target, str) else None
        path = Path(name).expanduser() if home is None else home
        is_file, is_directory = home is None and look(path).is_file(), path.is_dir()
    except (OSError, RuntimeError, ValueError) as error:  # too long, no such home, a zero byte
        why = getattr(error, "strerror", None) or "it is no path"
        raise UsageError(f"no such target: {name[:60]!r} names nothing ({why})") from None
    if is_file:
        return _in_file(path, str(path))
    if is_directory:
        own = None if home is None else named_file_of(name, os.environ if environ is None else environ)
        return _in_directory(path, name) if own is None else _elsewhere(own, path)
    raise UsageError(_not_found(name, base)).for_readers("read:agents", f"there is no agent {name[:60]!r}")


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


def own_agents(base: Path) -> list[str]:
    """The names of the agents in a configuration directory."""
    home = base / "agents"
    if not home.is_dir():
        return []
    return sorted(path.name for path in home.iterdir() if path.is_dir() and not path.name.startswith("."))


def built_in_agents() -> list[str]:
    """Names of the agents that come with Callboard."""
    return sorted(path.name for path in AGENTS.iterdir() if path.is_dir() and _agent_files(path))


def description_of(name: str, base: Path) -> str:
    """What the file of an agent of the configuration directory, or of a built-in one, says that it is for; "" if that
    can't be read. Its other problems are told by who runs it.
    """
    home = _home(name, base)
    files = _agent_files(home) if home is not None else []
    try:
        root = parse_mapping(_text(files[0], name), name)[0] if files else None
    except InvalidFile:
        return ""
    said = root.entries.get("description") if root is not None else None
    return " ".join(said.value.text.split()) if said is not None and isinstance(said.value, Scalar) else ""


def _in_file(path: Path, shown: str) -> Found:
    text = _text(path, shown)
    dialect = _BY_NAME.get(path.name)
    if dialect is None:
        root, problems = parse_mapping(text, shown)
        if root is None:
            raise InvalidFile(text_of_problems(problems, shown), problems)
        dialect = _dialect(root)
    return Found(dialect=dialect, file=shown, directory=path.absolute().parent, text=text)


def _elsewhere(named: str, directory: Path) -> Found:
    """The agent in `directory` with another file in the place of its own."""
    return msgspec.structs.replace(_in_file(Path(named).expanduser(), named), directory=directory.absolute())


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
    found = [path / name for name in _BY_NAME if look(path / name).is_file()]
    return found or [path / name for name in (INDEX,) if look(path / name).is_file()]


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
    known = own_agents(base)
    known += [each for each in built_in_agents() if each not in known]
    near = did_you_mean(name, known)
    text = f"no such target: {name!r} is neither a YAML file, nor an agent's directory, nor an agent in {agents}"
    if near:
        return f"{text}; {near}"
    return f"{text} (there are: {', '.join(known)})" if known else text


def _no_such_file(path: Path, name: str) -> str:
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
    return f"the file '{name}' does not exist" + (f"; {suggestion(names[near[0]])}" if near else "")


def text_of_problems(problems: Sequence[Problem], file: str) -> str:
    """`failure_text` for what is no graph: its headline is Loki's and speaks of one."""
    _, *lines = failure_text(problems).splitlines()
    return "\n".join([f"{len(errors_in(problems))} error(s) in {file}:", *lines])
