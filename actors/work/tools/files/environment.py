"""Directories and environment variables of a tool: the interface that its file may rely on.

The names are Loki's. Every tool receives

    LLM_OUTPUT               the file for its result
    LLM_ROOT_DIR             the configuration directory that contains the tool (`directories.root_dir`)
    LLM_TOOL_NAME            the name that the model calls
    LLM_TOOL_CACHE_DIR       a directory of its own that outlives the call
    LLM_PROMPT_UTILS_FILE    bash helpers for questions
    LLM_TOOL_RAW_JSON        the arguments as JSON, unless they are longer than a variable may be

A tool of an agent also receives `LLM_AGENT_NAME`, `LLM_AGENT_FUNC`, `LLM_AGENT_ROOT_DIR`, `LLM_AGENT_DATA_DIR`,
`LLM_AGENT_CACHE_DIR` and one `LLM_AGENT_VAR_<NAME>` per variable; a tool of the agent's own file also
`LLM_AGENT_RAW_JSON`. `AUTO_CONFIRM=1` means that the user has approved everything beforehand.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ....io.directories import root_dir, user_folder
from ....io.environment import env_file, read_dotenv
from ...library import PROMPT_UTILS

if TYPE_CHECKING:
    from ..declare.declaration import Declaration

_OURS = ("LLM_AGENT_", "LLM_TOOL_", "CALLBOARD_ASK_FD", "CALLBOARD_CALL_FD", "CALLBOARD_TTY_FD")
"""Prefixes of variables that an outer Callboard may have set for its own tools; they are removed."""


LONGEST_VARIABLE = 100_000
"""Maximum bytes of a variable. Linux starts no program with a variable of more than 128 KiB."""


class Home(msgspec.Struct, frozen=True, kw_only=True):
    """Environment in which the tools of one agent run.

    Attributes:
        config_dir: contains settings, agents and tools.
        environ: the variables that tools inherit; see `tool_environ` for the `.env` files in it.
        cache: the root of all cache directories.
        agent: name of the calling agent, if there is one.
        agent_dir: that agent's directory; None if it has none.
        own: the tool is defined in that agent's own file, and is not a global one.
        values: the agent's variables.
        auto_confirm: the user has approved everything beforehand (`--yes`).
        cwd: the working directory of tools; None for that of the process.
    """

    config_dir: Path
    environ: Mapping[str, str]
    cache: Path
    agent: str | None = None
    agent_dir: Path | None = None
    own: bool = False
    values: Mapping[str, str] = {}
    auto_confirm: bool = False
    cwd: Path | None = None


def inherited(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a user's program: all variables except the ones of an outer Callboard."""
    return {name: value for name, value in environ.items() if not name.startswith(_OURS)}


def environment(home: Home, declaration: Declaration, *, output: Path, raw: str = "{}") -> dict[str, str]:
    """Return the environment of one call.

    Args:
        output: the file for its result.
        raw: its arguments as JSON.
    """
    environ = inherited(home.environ)
    programs = user_folder("functions", home.config_dir, home.environ) / "bin"
    environ.update(
        LLM_OUTPUT=str(output),
        LLM_ROOT_DIR=str(root_dir(home.config_dir, home.agent_dir if home.own else None)),
        LLM_TOOL_NAME=declaration.name,
        LLM_TOOL_CACHE_DIR=str(tool_cache(home, declaration)),
        LLM_PROMPT_UTILS_FILE=str(PROMPT_UTILS),
        PATH=os.pathsep.join([str(programs), environ.get("PATH", os.defpath)]),
    )
    if home.agent is not None:
        directory = str(home.agent_dir or home.config_dir)
        environ.update(
            LLM_AGENT_NAME=home.agent,
            LLM_AGENT_FUNC=declaration.function,
            LLM_AGENT_ROOT_DIR=directory,
            LLM_AGENT_DATA_DIR=directory,
            LLM_AGENT_CACHE_DIR=str(agent_cache(home, home.agent)),
        )
    # Longer arguments reach bash through the call file instead.
    if len(raw.encode()) <= LONGEST_VARIABLE:
        environ.update(dict.fromkeys(raw_names(home), raw))
    for name, value in home.values.items():
        environ["LLM_AGENT_VAR_" + re.sub(r"[^A-Z0-9_]", "_", name.upper())] = value
    if home.auto_confirm:
        environ["AUTO_CONFIRM"] = "1"
    return environ


def raw_names(home: Home) -> list[str]:
    """Return the names of the variables for the arguments as JSON: two for a tool of an agent's own file, else one."""
    return ["LLM_TOOL_RAW_JSON", *(["LLM_AGENT_RAW_JSON"] if home.agent is not None and home.own else [])]


def caches(home: Home, declaration: Declaration) -> list[Path]:
    """Return the cache directories of this tool: its own, and that of the calling agent if there is one."""
    of_agent = [] if home.agent is None else [agent_cache(home, home.agent)]
    return [tool_cache(home, declaration), *of_agent]


def tool_cache(home: Home, declaration: Declaration) -> Path:
    """Return the cache directory of a tool; an agent's own tools have one per agent."""
    base = home.cache
    if home.agent is not None and home.own:
        base = agent_cache(home, home.agent)
    return base / "tools" / file_name(declaration.name)


def agent_cache(home: Home, agent: str) -> Path:
    return home.cache / "agents" / file_name(agent)


def file_name(name: str) -> str:
    """Return a name as a file name: letters, digits, `_`, `.` and `-` remain; others become `_`. Cut at 100."""
    # A tool's or agent's name must not leave its cache directory.
    part = re.sub(r"[^\w.-]", "_", name)[:100]
    return part if part.strip(".") else "_"


# --- `.env` files
#
# The user's own files may set anything. An agent's file may come from a repository that the user does not control. It
# therefore sets no variable that makes other programs run something, or that confirms on the user's behalf
# (`is_reserved`).

_RESERVED = frozenset(("AUTO_CONFIRM", "BASH_ENV", "ENV", "IFS", "PATH"))
_RESERVED_BEGINNINGS = ("LD_", "DYLD_", "PYTHON", "NODE_", "BASH_FUNC_", "GIT_")


def tool_environ(environ: Mapping[str, str], *, agent_dir: Path | None, config_dir: Path) -> dict[str, str]:
    """Return `environ`, completed by the `.env` files that apply to tools, nearest first.

    The order is: the agent's own directory, without variables that are reserved (`is_reserved`), then the configuration
    directory, then its `functions/`.

    Args:
        agent_dir: of the agent that defines the tools; None for global tools, to which no agent's file applies.

    Raises:
        ConfigError: a file cannot be read.
    """
    of_user = read_dotenv(env_file(config_dir, environ))
    found = [of_user, read_dotenv(user_folder("functions", config_dir, environ) / ".env")]
    if agent_dir is not None:
        own = read_dotenv(agent_dir / ".env")
        found.insert(0, {name: value for name, value in own.items() if not is_reserved(name)})
    # `load_env_file` has put the user's file into the process environment. Such a value must not override a nearer
    # file.
    set_here = {name: value for name, value in environ.items() if of_user.get(name) != value}
    return {name: value for values in (*reversed(found), set_here) for name, value in values.items()}


def is_reserved(name: str) -> bool:
    """Return True if an agent's own `.env` cannot set this variable."""
    return name in _RESERVED or name.startswith(_RESERVED_BEGINNINGS)
