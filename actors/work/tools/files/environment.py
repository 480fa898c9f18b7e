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

from .....protocol.errors import ConfigError
from ....io.directories import root_dir
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
    environ.update(
        LLM_OUTPUT=str(output),
        LLM_ROOT_DIR=str(root_dir(home.config_dir, home.agent_dir if home.own else None)),
        LLM_TOOL_NAME=declaration.name,
        LLM_TOOL_CACHE_DIR=str(tool_cache(home, declaration)),
        LLM_PROMPT_UTILS_FILE=str(PROMPT_UTILS),
        PATH=os.pathsep.join([str(home.config_dir / "functions" / "bin"), environ.get("PATH", os.defpath)]),
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


# --- `.env` files: `KEY=VALUE` lines, as data
#
# Nothing is expanded and nothing is run: `$HOME` and `$(date)` stay as they are. A value in single quotes is taken as
# it is, one in double quotes may hold `\n`, `\t`, `\"`, `\\` and may go over several lines, and an unquoted one ends
# where ` #` begins a comment. `export` in front is allowed. What is set already always wins.
#
# The user's own files may set anything. That of an agent may have come with a repository, so it sets nothing that makes
# other programs run something, or that says yes for the user (`is_reserved`).

_NAME = re.compile(r"[ \t]*(?:export[ \t]+)?([A-Za-z_][A-Za-z0-9_]*)[ \t]*=[ \t]*")
_BLANK = re.compile(r"[ \t\r]*(?:#[^\n]*)?(?:\n|\Z)")
_SINGLE = re.compile(r"'([^']*)'")
_DOUBLE = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_BARE = re.compile(r"[^\n]*")
_COMMENT = re.compile(r"(?:^|[ \t])#.*")
_RESERVED = frozenset(("AUTO_CONFIRM", "BASH_ENV", "ENV", "IFS", "PATH"))
_RESERVED_BEGINNINGS = ("LD_", "DYLD_", "PYTHON", "NODE_", "BASH_FUNC_", "GIT_")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\", "$": "$"}


def tool_environ(environ: Mapping[str, str], *, agent_dir: Path | None, config_dir: Path) -> dict[str, str]:
    """`environ` and, for what it does not set, the `.env` files that hold for tools, nearest first.

    The agent's own directory, without what `is_reserved`, then the configuration directory, then `functions/` in it.

    Args:
        agent_dir: of the agent whose own tools these are; None for global tools, which no agent's file concerns.

    Raises:
        ConfigError: one of them can't be read.
    """
    found = [read_dotenv(home / ".env") for home in (config_dir, config_dir / "functions")]
    if agent_dir is not None:
        own = read_dotenv(agent_dir / ".env")
        found.insert(0, {name: value for name, value in own.items() if not is_reserved(name)})
    return {name: value for values in (*reversed(found), environ) for name, value in values.items()}


def is_reserved(name: str) -> bool:
    """Whether an agent's own `.env` can't set this variable."""
    return name in _RESERVED or name.startswith(_RESERVED_BEGINNINGS)


def read_dotenv(file: Path) -> dict[str, str]:
    """What a `.env` file sets; nothing if there is none. The last of two lines with the same name wins.

    Raises:
        ConfigError: it can't be read or understood; says the line.
    """
    try:
        text = file.read_text("utf-8-sig").replace("\r\n", "\n")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file}: it is not UTF-8 text (byte {error.start})") from error
    except OSError as error:
        raise ConfigError(f"{file}: it can't be read ({error.strerror})") from error
    return _parse(text, file)


def _parse(text: str, file: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    at = 0
    while at < len(text):
        if blank := _BLANK.match(text, at):
            at = blank.end()
            continue
        line = text.count("\n", 0, at) + 1
        name = _NAME.match(text, at)
        if name is None:
            shown = text[at:].split("\n", 1)[0].strip()[:60]
            raise ConfigError(f"{file}:{line}: expected NAME=VALUE, found: {shown}")
        value, at = _value(text, name.end(), f"{file}:{line}: {name[1]}")
        if "\0" in value:
            raise ConfigError(f"{file}:{line}: {name[1]}: a value can't hold a NUL character")
        found[name[1]] = value
    return found


def _value(text: str, at: int, where: str) -> tuple[str, int]:
    quote = text[at : at + 1]
    if quote not in ("'", '"'):
        bare = _BARE.match(text, at)
        assert bare is not None
        return _COMMENT.sub("", bare[0]).strip(), bare.end()
    quoted = (_SINGLE if quote == "'" else _DOUBLE).match(text, at)
    if quoted is None:
        raise ConfigError(f"{where}: the value begins with {quote} and that quote is never closed")
    rest = _BLANK.match(text, quoted.end())
    if rest is None:
        shown = text[quoted.end() :].split("\n", 1)[0].strip()[:40]
        raise ConfigError(f"{where}: nothing may follow the closing {quote} but a comment, found: {shown}")
    value = quoted[1]
    if quote == '"':
        value = re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[0]), value, flags=re.DOTALL)
    return value, rest.end()
