"""`.env` files: `NAME=VALUE` lines, as data.

Nothing is expanded and nothing is run: `$HOME` and `$(date)` stay as they are. A value in single quotes is taken as
it is, one in double quotes may hold `\\n`, `\\t`, `\\"`, `\\\\` and may go over several lines, and an unquoted one ends
where ` #` begins a comment. `export` in front is allowed. What is set already always wins.

The program `callboard` puts that of the configuration directory into its own environment before it reads anything else,
so that keys of providers, `CALLBOARD_<KEY>` and `${NAME}` in files may stand there. A program that uses Callboard as a
library has an environment of its own, which nothing here changes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, MutableMapping
from pathlib import Path

from ...protocol.environment import names_of, said
from ...protocol.errors import ConfigError

_NAME = re.compile(r"[ \t]*(?:export[ \t]+)?([A-Za-z_][A-Za-z0-9_]*)[ \t]*=[ \t]*")
_BLANK = re.compile(r"[ \t\r]*(?:#[^\n]*)?(?:\n|\Z)")
_SINGLE = re.compile(r"'([^']*)'")
_DOUBLE = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_BARE = re.compile(r"[^\n]*")
_COMMENT = re.compile(r"(?:^|[ \t])#.*")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\", "$": "$"}
_BEFORE_IT = frozenset((*names_of("config_dir"), *names_of("env_file")))
"""Variables that say which file is read, and so can't stand in it."""


def env_file(config_dir: Path, environ: Mapping[str, str]) -> Path:
    """The user's own file: `CALLBOARD_ENV_FILE` or `LOKI_ENV_FILE`, else `.env` in the configuration directory."""
    named = said("env_file", environ)[1]
    return Path(named).expanduser() if named else config_dir / ".env"


def load_env_file(config_dir: Path, environ: MutableMapping[str, str]) -> list[str]:
    """Set what the user's file sets and `environ` does not; returns the names of these.

    Raises:
        ConfigError: it can't be read or understood, or is named by a variable and not there.
    """
    file = env_file(config_dir, environ)
    found = read_dotenv(file)
    if not found and not file.exists():
        variable, named = said("env_file", environ)
        if variable:
            raise ConfigError(f"{variable} names '{named}', which is not there")
        return []
    fresh = {name: value for name, value in found.items() if name not in environ and name not in _BEFORE_IT}
    environ.update(fresh)
    return sorted(fresh)


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
    at = counted = 0
    line = 1
    while at < len(text):
        if blank := _BLANK.match(text, at):
            at = blank.end()
            continue
        line += text.count("\n", counted, at)
        counted = at
        name = _NAME.match(text, at)
        if name is None:
            # What stands there is not told: it may be a further line of a key, and runs tell their errors to others.
            raise ConfigError(
                f"{file}:{line}: expected NAME=VALUE; a value of several lines stands between double quotes"
            )
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
        raise ConfigError(f"{where}: nothing may follow the closing {quote} but a comment")
    value = quoted[1]
    if quote == '"':
        value = re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[0]), value, flags=re.DOTALL)
    return value, rest.end()
