"""Tool registry: finds the tools that an agent names in its own file, the user's global files, and the built-in tools.

    agents/<name>/tools.sh | tools.py | tools.ts      each function is a tool of that agent (one file per agent)
    functions/tools/<tool>.sh | .py | .ts             one global tool per file, named after it
    builtin.table                                     built in, unless the user has a global file of that name
    library/functions/tools/<tool>.py                 built in too: tools that need a key or an account

A name may include its file's ending (`fs_cat.sh`), and may be an alias of `mapping_tools`, which expands to several
names. `all` expands to every global tool except the ones in `library`, which have to be named. With `visible_tools` in
the settings, only the listed global tools exist.

Files are read once, and again when they change.

An agent in aichat's format has the keys of a `config.yaml` in an `index.yaml`, and names global tools in a `tools.txt`.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from ....protocol.agent import Agent
from ....protocol.errors import InvalidFile
from ....protocol.permissions import Permissions
from ....protocol.problems import Problem, did_you_mean, errors_in
from ....protocol.settings import Settings
from ...io.directories import cache_dir, user_folder
from ...io.file_fingerprints import MISSING, Stamp, record_read, settled, stamp
from ..library import SENDING
from ..library import TOOLS as LIBRARY
from .builtin.table import SPECS
from .rules import HOST, SERVER
from .tool import TIMEOUT, Tool

if TYPE_CHECKING:
    from ....supervisors import Actor
    from .declare.declaration import ToolFile
    from .files.environment import Home


ENDINGS = (".sh", ".py", ".ts", ".js")
DEFAULT_ALIASES = {"fs": "fs_cat,fs_read,fs_ls,fs_glob,fs_grep,fs_edit,fs_mkdir,fs_patch,fs_rm,fs_write"}
OTHER_NAMES = {"web_search_coyote": "web_search_loki"}
"""Name in Loki's successor of a built-in tool. A file of the user with that name takes precedence."""
ALL = "all"
OURS = tuple(sorted(SPECS))
"""Names of the tools in `builtin`."""
WITH_ACCOUNTS = tuple(sorted({path.stem for path in LIBRARY.glob("*.py")} - SPECS.keys()))
"""Names of the tools in `library`."""
_COME_WITH_IT = frozenset((*OURS, *WITH_ACCOUNTS))

_PATTERN = re.compile(r"[*?]")
_HIDDEN = "`visible_tools` in config.yaml excludes it"


class ToolOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Tool options of a run.

    Attributes:
        yes: no call asks for permission; tools receive `AUTO_CONFIRM`.
        roots: directories that `fs_*` may read and write, in addition to the working directory and the roots in
            the settings.
        cwd: the working directory of the run's tools; None for that of the process.
    """

    yes: bool = False
    roots: tuple[Path, ...] = ()
    cwd: Path | None = None


class AgentTools(msgspec.Struct, frozen=True, kw_only=True):
    """Tools of one agent.

    Attributes:
        tools: by name, the tools of its own file first.
        instructions: runs `_instructions` of its tools file; None if the file has none.
        problems: warnings about that file.
    """

    tools: Mapping[str, Tool] = {}
    instructions: Callable[[Actor], Awaitable[str]] | None = None
    problems: tuple[Problem, ...] = ()


class ToolRegistry:
    """Registry of the tools for the agents of one configuration directory.

    Args:
        config_dir: contains `functions/tools` and `.env`.
        settings: aliases, and the names of visible tools.
        environ: the environment that tools inherit.

    Attributes:
        config_dir, settings: the arguments.
    """

    def __init__(self, config_dir: Path, settings: Settings, environ: Mapping[str, str]) -> None:
        self.config_dir = config_dir
        self.settings = settings
        self._environ = environ
        self._ours: dict[tuple[Path, ...], dict[str, Tool]] = {}
        self._folder = user_folder("functions", config_dir, environ) / "tools"
        self._listed: tuple[Stamp | None, dict[str, Path]] = None, {}

    def global_names(self) -> list[str]:
        """Return the names of all global tools that `visible_tools` does not exclude, built-in ones first."""
        ours = filter(self._visible, (*OURS, *WITH_ACCOUNTS))
        return [*ours, *(name for name in self._files() if name not in _COME_WITH_IT)]

    def spelled_out(self, names: Iterable[str]) -> list[str]:
        """Return the names without endings, with aliases and `all` expanded; each once, in order."""
        aliases = {**DEFAULT_ALIASES, **self.settings.mapping_tools}
        found: dict[str, None] = {}
        for given in names:
            name = bare_name(given)
            if name == ALL:
                found.update(dict.fromkeys(filter(self._is_in_all, self.global_names())))
            elif name in aliases and name not in OURS:
                found.update(dict.fromkeys(bare_name(part) for part in names_in(aliases[name])))
            elif name in OTHER_NAMES and name not in self._files():
                found[OTHER_NAMES[name]] = None
            else:
                found[name] = None
        return list(found)

    def permissions(self, rules: Permissions) -> Permissions:
        """Return rules with aliases expanded. A rule for a tool's own name overrides one for an alias."""
        spelled = {name: rule for alias, rule in rules.items() for name in self.spelled_out([alias])}
        return {**spelled, **{name: rule for name, rule in rules.items() if name in spelled}}

    def strangers(self, rules: Iterable[str], own: Iterable[str] = ()) -> list[tuple[str, str]]:
        """Return the tool names in permission rules that no tool has, each with a hint.

        Ignores patterns, hosts, and names of families and servers.

        Args:
            own: names of tools that are not global.
        """
        own = set(own)
        names = [
            name
            for name in rules
            if not _PATTERN.search(name) and "__" not in name and not name.startswith(("mcp_", SERVER, HOST))
        ]
        return [found for found in self.unknown(names) if found[0] not in own]

    def unknown(self, names: Iterable[str]) -> list[tuple[str, str]]:
        """Return the names that match no global tool, each with a hint."""
        named = self.spelled_out(names)
        if not named:
            return []
        there = self.global_names()
        aliases = {**DEFAULT_ALIASES, **self.settings.mapping_tools}
        missing = [name for name in named if name not in there]
        of_all = f"there are: {', '.join(there)}" if there else "`visible_tools` in config.yaml excludes all tools"
        return [
            (name, _HIDDEN if self._is_hidden(name) else did_you_mean(name, [*there, *aliases]) or of_all)
            for name in missing
        ]

    def named(self, names: Iterable[str], home: Home, options: ToolOptions, timeout: float = TIMEOUT) -> list[Tool]:
        """Return the global tools of these names; an unknown name is left out.

        Raises:
            InvalidFile: a tool's file has errors.
            ConfigError: a `.env` file cannot be read, or the parser of a TypeScript file is not installed.
        """
        there = set(self.global_names())
        return [self._tool(name, home, options, timeout) for name in self.spelled_out(names) if name in there]

    def of_agent(self, directory: Path, home: Home, timeout: float = TIMEOUT) -> AgentTools:
        """Return the tools of the agent in `directory`.

        Raises:
            InvalidFile: its tools file has errors, or there are two of them.
            ConfigError: the parser of a TypeScript file is not installed.
        """
        path = agent_file(directory)
        if path is None:
            return AgentTools()
        from .files.call import file_tool, instructions

        file = self.read(path, agent=True)
        dynamic = file.instructions
        run = partial(instructions, declaration=dynamic, home=home, timeout=timeout) if dynamic else None
        return AgentTools(
            tools={each.name: judged_as_ours(file_tool(each, home, timeout=timeout)) for each in file.declarations},
            instructions=run,
            problems=tuple(file.problems),
        )

    def read(self, path: Path, *, agent: bool) -> ToolFile:
        """Read a tools file and return it if it has no errors.

        Raises:
            InvalidFile: the file has errors.
            ConfigError: it is TypeScript, and its parser is not installed.
        """
        file = read_tool_file(path, agent=agent)
        errors = errors_in(file.problems)
        if errors:
            raise InvalidFile("\n".join(str(problem) for problem in errors), file.problems)
        return file

    def home(
        self, *, directory: Path | None, agent: str | None, values: Mapping[str, str], options: ToolOptions
    ) -> Home:
        """Return the environment in which the tools of an agent run.

        Raises:
            ConfigError: a `.env` file cannot be read.
        """
        from .files.environment import Home, tool_environ

        return Home(
            config_dir=self.config_dir,
            agent=agent,
            agent_dir=directory,
            own=True,
            values=dict(values),
            environ=tool_environ(self._environ, agent_dir=directory, config_dir=self.config_dir),
            cache=cache_dir(self._environ),
            auto_confirm=options.yes,
            cwd=options.cwd,
        )

    def _tool(self, name: str, home: Home, options: ToolOptions, timeout: float) -> Tool:
        path = self._files().get(name)
        # A file of the user replaces a built-in tool of the same name.
        if path is None and name in SPECS:
            return self._builtin((*map(Path, self.settings.tool_roots), *options.roots), options.cwd)[name]
        from .files.call import file_tool
        from .files.environment import tool_environ

        (declaration,) = self.read(path or LIBRARY / f"{name}.py", agent=False).declarations
        environ = tool_environ(self._environ, agent_dir=None, config_dir=self.config_dir)
        home = msgspec.structs.replace(home, own=False, environ=environ)
        tool = judged_as_ours(file_tool(declaration, home, timeout=timeout))
        if name in SENDING:  # The effect also applies to a file of the user with that name.
            tool = msgspec.structs.replace(tool, effect="send")
        if path is not None:
            return tool
        effect = tool.effect if name in SENDING else "read"
        return msgspec.structs.replace(tool, origin="builtin", effect=effect, access="web")

    def _builtin(self, roots: tuple[Path, ...], cwd: Path | None) -> dict[str, Tool]:
        here = cwd or Path.cwd()
        key = (here, *(here / root.expanduser() for root in roots))
        table = self._ours.get(key)
        if table is None:
            from .builtin.table import builtin_tools

            table = self._ours[key] = builtin_tools(self._environ, key, here=here, keeps=self.settings.keep_changes)
        return table

    def _files(self) -> dict[str, Path]:
        """Return the user's global tools. Of two files with one name, the first by `ENDINGS` wins."""
        now = stamp(record_read(self._folder))
        listed, files = self._listed
        if listed != now:
            files = self._found() if now != MISSING else {}
            # A folder that was modified just now may change again within the resolution of its timestamp: do not cache
            # it yet.
            self._listed = (now if settled({self._folder: now}) else None), files
        return files

    def _found(self) -> dict[str, Path]:
        try:
            paths = [path for path in self._folder.iterdir() if path.suffix in ENDINGS and self._visible(path.stem)]
        except OSError:
            return {}
        paths.sort(key=lambda path: (path.stem, -ENDINGS.index(path.suffix)))
        return {path.stem: path for path in paths}

    def _is_hidden(self, name: str) -> bool:
        """Return True if the tool exists and `visible_tools` leaves it out."""
        files = (record_read(self._folder / f"{name}{ending}") for ending in ENDINGS)
        return not self._visible(name) and (name in _COME_WITH_IT or any(file.is_file() for file in files))

    def _is_in_all(self, name: str) -> bool:
        """Return True if `all` includes the tool.

        One that needs an account must be named, listed in `visible_tools`, or replaced by the user's own file.
        """
        return name not in WITH_ACCOUNTS or name in self._files() or self.settings.visible_tools is not None

    def _visible(self, name: str) -> bool:
        visible = self.settings.visible_tools
        return visible is None or name in {bare_name(each) for each in visible}


def read_tool_file(path: Path, *, agent: bool, wordless: bool = False) -> ToolFile:
    """Return a tools file with all its problems; read again only after a change. See `declare.read.read_tools`.

    Raises:
        ConfigError: the file is TypeScript, and its parser is not installed.
    """
    return _read_once(path, agent, wordless, stamp(record_read(path)))


@lru_cache(maxsize=1_024)
def _read_once(path: Path, agent: bool, wordless: bool, _stamp: Stamp) -> ToolFile:
    from .declare.read import read_tools

    return read_tools(path, agent=agent, wordless=wordless)


AICHAT_FILE = "index.yaml"
"""Name of an agent's definition file in aichat."""

_ENDINGS_OF_AICHAT = (".sh", ".js", ".py", ".ts")
"""Search order of llm-functions for an agent's tools file. It uses the first and silently ignores others."""


def _is_aichats(directory: Path) -> bool:
    return record_read(directory / AICHAT_FILE).is_file() and not any(
        record_read(directory / name).is_file() for name in ("config.yaml", "graph.yaml")
    )


def agent_files(directory: Path) -> list[Path]:
    """Return every tools file in an agent's directory, in aichat's search order."""
    return [
        path for path in (directory / f"tools{ending}" for ending in _ENDINGS_OF_AICHAT) if record_read(path).is_file()
    ]


def agent_file(directory: Path) -> Path | None:
    """Return the tools file of the agent in `directory`; None if it has none.

    Raises:
        InvalidFile: there are several. In an aichat agent (`index.yaml`) the first one wins instead.
    """
    found = agent_files(directory)
    if len(found) < 2:
        return found[0] if found else None
    if not _is_aichats(directory):
        names = " and ".join(path.name for path in found)
        raise InvalidFile(
            f"{directory} has {names}, and an agent can have one tools file: move all functions into one of them"
        )
    return found[0]


LISTED = "tools.txt"
"""File next to `index.yaml` with one global tool per line; lines that begin with `#` are comments."""


def with_listed(agent: Agent, directory: Path) -> Agent:
    """Return the agent of an `index.yaml` with the tools of its `tools.txt`; unchanged if there is no such file.

    Raises:
        InvalidFile: `tools.txt` cannot be read.
    """
    file = record_read(directory / LISTED)
    if not file.is_file():
        return agent
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise InvalidFile(f"{file} can't be read: {error.strerror or error}") from error
    lines = (line.strip() for line in text.splitlines())
    listed = (line for line in lines if line and not line.startswith("#"))
    return msgspec.structs.replace(agent, global_tools=tuple(dict.fromkeys((*agent.global_tools, *listed))))


def judged_as_ours(tool: Tool) -> Tool:
    """Return a user's tool that has a built-in tool's name, with the permission subject of that tool, if it has the
    same text parameter.

    A rule for `fs_cat` is about paths, also for a user's own `fs_cat`.
    """
    if tool.name not in OURS:
        return tool
    spec = SPECS[tool.name]
    parameter = tool.spec.parameters.get("properties", {}).get(spec.subject)
    if parameter is None or parameter.get("type") != "string":
        return tool
    return msgspec.structs.replace(tool, subject=spec.subject, shell=spec.subject == "command", reads=spec.reads)


def names_in(text: str) -> list[str]:
    """Return the names in a comma-separated list."""
    return [name.strip() for name in text.split(",") if name.strip()]


def bare_name(name: str) -> str:
    """Return a tool's name without its file ending: `fs_cat` for `fs_cat.sh`."""
    stem, dot, ending = name.rpartition(".")
    return stem if dot and f".{ending}" in ENDINGS and not name.startswith(HOST) else name


# --- the tools of one agent


class ToolSources(Protocol):
    """Tool sources of a run; implemented by `RunContext`."""

    @property
    def registry(self) -> ToolRegistry | None:
        """The registry; None in a run without one."""

    @property
    def tool_options(self) -> ToolOptions | None:
        """The tool options of the run; None for the defaults."""

    @property
    def functions(self) -> tuple[Tool, ...]:
        """Python functions that the caller passed to the run."""


def tools_of_agent(
    run: ToolSources,
    *,
    name: str,
    directory: Path | None,
    listed: Iterable[str],
    values: Mapping[str, str],
    timeout: float | None = None,
    functions: Sequence[Tool] = (),
) -> AgentTools:
    """Return all tools that an agent may call. Precedence for equal names: its own file, a function, a global tool.

    Args:
        directory: of the agent; None if it has none.
        listed: `global_tools` of its file; unknown names are left out.
        values: its variables.
        timeout: seconds of a call to a tool file; None for the default.
        functions: its own Python functions.

    Raises:
        InvalidFile: a tool file has errors.
        ConfigError: a `.env` file has errors.
    """
    given = {tool.name: judged_as_ours(tool) for tool in (*run.functions, *functions)}
    registry = run.registry
    listed = list(listed)
    # Without tool files there is nothing to prepare: the environment would read `.env` files.
    if registry is None or not (listed or (directory is not None and agent_file(directory))):
        return AgentTools(tools=given)
    options = run.tool_options or ToolOptions()
    home = registry.home(directory=directory, agent=name, values=values, options=options)
    own = AgentTools() if directory is None else registry.of_agent(directory, home, timeout or TIMEOUT)
    named = {tool.name: tool for tool in registry.named(listed, home, options, timeout or TIMEOUT)}
    # This determines the order of the tools; the next line determines which of two with one name wins.
    in_order = {**own.tools, **given, **named}
    return AgentTools(tools={**in_order, **given, **own.tools}, instructions=own.instructions)
