"""`.env` files: `KEY=VALUE` lines, as data.

Nothing is expanded and nothing is run: `$HOME` and `$(date)` stay as they are. A value in single quotes is taken as it
is, one in double quotes may hold `\\n`, `\\t`, `\\"`, `\\\\` and may go over several lines, and an unquoted one ends
where ` #` begins a comment. `export` in front is allowed. What is set already always wins.

The user's own files may set anything. That of an agent may have come with a repository, so it sets nothing that makes
other programs run something, or that says yes for the user (`is_reserved`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from .....protocol.errors import ConfigError

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
