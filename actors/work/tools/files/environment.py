"""A tool's directories and environment: what its file may rely on.

The names are Loki's. Every tool gets

    LLM_OUTPUT               the file that it writes its result to
    LLM_ROOT_DIR             the configuration directory (`directories.root_dir`), whose tool it may be
    LLM_TOOL_NAME            as the model calls it
    LLM_TOOL_CACHE_DIR       a directory of its own that outlives the call
    LLM_PROMPT_UTILS_FILE    the helpers for questions in bash
    LLM_TOOL_RAW_JSON        the arguments as JSON, unless they are longer than a variable may be

and if it works for an agent also `LLM_AGENT_NAME`, `LLM_AGENT_FUNC`, `LLM_AGENT_ROOT_DIR`, `LLM_AGENT_DATA_DIR`,
`LLM_AGENT_CACHE_DIR` and one `LLM_AGENT_VAR_<NAME>` per variable; of its own file also `LLM_AGENT_RAW_JSON`.
`AUTO_CONFIRM=1` says that the user has agreed to everything beforehand.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ....io.directories import root_dir, user_folder
from ....io.env_file import env_file, read_dotenv
from ...library import PROMPT_UTILS

if TYPE_CHECKING:
    from ..declare.declaration import Declaration

_OURS = ("LLM_AGENT_", "LLM_TOOL_", "CALLBOARD_ASK_FD", "CALLBOARD_CALL_FD", "CALLBOARD_TTY")
"""Beginnings of names that a Callboard around us may have left in our environment, and that mean nothing here."""


LONGEST_VARIABLE = 100_000
"""Bytes. Linux starts no program with a variable of more than 128 KiB."""


class Home(msgspec.Struct, frozen=True, kw_only=True):
    """See the module.

    Attributes:
        config_dir: where settings, agents and tools live.
        environ: what tools inherit; see `tool_environ` for the `.env` files in it.
        cache: the root of all cache directories.
        agent: name of the agent that the tool works for, if it is one.
        agent_dir: that agent's directory; None for one that has none.
        own: the tool is of that agent's own file, and not a global one.
        values: the agent's variables.
        auto_confirm: the user has agreed to everything beforehand (`--yes`).
        cwd: the directory that tools work in; None for ours.
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
    """What a program of the user's has of our environment: all but what a Callboard around us has left there."""
    return {name: value for name, value in environ.items() if not name.startswith(_OURS)}


def environment(home: Home, declaration: Declaration, *, output: Path, raw: str = "{}") -> dict[str, str]:
    """The environment of one call.

    Args:
        output: where its result belongs.
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
    if len(raw.encode()) <= LONGEST_VARIABLE:
        environ.update(dict.fromkeys(raw_names(home), raw))
    for name, value in home.values.items():
        environ["LLM_AGENT_VAR_" + re.sub(r"[^A-Z0-9_]", "_", name.upper())] = value
    if home.auto_confirm:
        environ["AUTO_CONFIRM"] = "1"
    return environ


def raw_names(home: Home) -> list[str]:
    """The variables that hold the arguments of a call as JSON."""
    return ["LLM_TOOL_RAW_JSON", *(["LLM_AGENT_RAW_JSON"] if home.agent is not None and home.own else [])]


def caches(home: Home, declaration: Declaration) -> list[Path]:
    """The directories that this tool may keep things in: one of its own, and its agent's."""
    of_agent = [] if home.agent is None else [agent_cache(home, home.agent)]
    return [tool_cache(home, declaration), *of_agent]


def tool_cache(home: Home, declaration: Declaration) -> Path:
    """One per tool, and per agent for an agent's own tools."""
    base = home.cache
    if home.agent is not None and home.own:
        base = agent_cache(home, home.agent)
    return base / "tools" / file_name(declaration.name)


def agent_cache(home: Home, agent: str) -> Path:
    """One per agent."""
    return home.cache / "agents" / file_name(agent)


def file_name(name: str) -> str:
    """A name as one part of a path."""
    part = re.sub(r"[^\w.-]", "_", name)[:100]
    return part if part.strip(".") else "_"


# --- `.env` files
#
# The user's own files may set anything. That of an agent may have come with a repository, so it sets nothing that makes
# other programs run something, or that says yes for the user (`is_reserved`).

_RESERVED = frozenset(("AUTO_CONFIRM", "BASH_ENV", "ENV", "IFS", "PATH"))
_RESERVED_BEGINNINGS = ("LD_", "DYLD_", "PYTHON", "NODE_", "BASH_FUNC_", "GIT_")


def tool_environ(environ: Mapping[str, str], *, agent_dir: Path | None, config_dir: Path) -> dict[str, str]:
    """`environ` and, for what it does not set, the `.env` files that hold for tools, nearest first.

    The agent's own directory, without what `is_reserved`, then the configuration directory, then `functions/` in it.

    Args:
        agent_dir: of the agent whose own tools these are; None for global tools, which no agent's file concerns.

    Raises:
        ConfigError: one of them can't be read.
    """
    of_user = read_dotenv(env_file(config_dir, environ))
    found = [of_user, read_dotenv(user_folder("functions", config_dir, environ) / ".env")]
    if agent_dir is not None:
        own = read_dotenv(agent_dir / ".env")
        found.insert(0, {name: value for name, value in own.items() if not is_reserved(name)})
    # the program has put the user's file into its environment (`load_env_file`); it goes before no nearer file for that
    set_here = {name: value for name, value in environ.items() if of_user.get(name) != value}
    return {name: value for values in (*reversed(found), set_here) for name, value in values.items()}


def is_reserved(name: str) -> bool:
    """Whether an agent's own `.env` can't set this variable."""
    return name in _RESERVED or name.startswith(_RESERVED_BEGINNINGS)
