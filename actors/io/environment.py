"""Environment of the program: the user's `.env` file, key files, and the user's shell.

**`.env` files** have `NAME=VALUE` lines, read as data. Nothing is expanded or executed: `$HOME` and `$(date)` remain
unchanged. A value in single quotes is literal. One in double quotes may contain `\\n`, `\\t`, `\\"`, `\\\\` and may
span lines. An unquoted one ends where ` #` begins a comment. A leading `export` is allowed. Variables that are already
set always win.

The program `callboard` first loads the file of the configuration directory into its own environment. So provider keys,
`CALLBOARD_<KEY>` and `${NAME}` in files may be defined there. A program that uses Callboard as a library owns its
environment, and nothing here changes it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from pathlib import Path

from ...protocol.environment import names_of, variable_value
from ...protocol.errors import ConfigError

_NAME = re.compile(r"[ \t]*(?:export[ \t]+)?([A-Za-z_][A-Za-z0-9_]*)[ \t]*=[ \t]*")
_BLANK = re.compile(r"[ \t\r]*(?:#[^\n]*)?(?:\n|\Z)")
_SINGLE = re.compile(r"'([^']*)'")
_DOUBLE = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_BARE = re.compile(r"[^\n]*")
_COMMENT = re.compile(r"(?:^|[ \t])#.*")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\", "$": "$"}
_BEFORE_IT = frozenset((*names_of("config_dir"), *names_of("env_file")))
"""Variables that select the file, and so can't be defined in it."""


def env_file(config_dir: Path, environ: Mapping[str, str]) -> Path:
    """Return the user's `.env` file:

    `CALLBOARD_ENV_FILE` or `LOKI_ENV_FILE`, else `.env` in the configuration directory.
    """
    named = variable_value("env_file", environ)[1]
    return Path(named).expanduser() if named else config_dir / ".env"


def load_env_file(config_dir: Path, environ: MutableMapping[str, str]) -> list[str]:
    """Set the variables of the user's file that `environ` lacks; return their names.

    Raises:
        ConfigError: the file can't be read or parsed, or a variable names a missing one.
    """
    file = env_file(config_dir, environ)
    found = read_dotenv(file)
    if not found and not file.exists():
        variable, named = variable_value("env_file", environ)
        if variable:
            raise ConfigError(f"{variable} names '{named}', and there is no such file")
        return []
    # Variables of the process win over the file, and those that select the file can't come from it.
    fresh = {name: value for name, value in found.items() if name not in environ and name not in _BEFORE_IT}
    environ.update(fresh)
    return sorted(fresh)


def load_key_files(environ: MutableMapping[str, str]) -> None:
    """Set each missing `NAME_API_KEY` from the file named by `NAME_API_KEY_FILE` (Docker's secrets).

    An unreadable file sets nothing: the variable may belong to another program. A client that needs the key reports the
    error.
    """
    for variable in [name for name in environ if name.endswith(KEY_FILE)]:
        name = variable.removesuffix("_FILE")
        if not environ.get(name):
            with suppress(ConfigError):
                environ[name] = key_in_file(variable, environ)


def key_in_file(variable: str, environ: Mapping[str, str]) -> str:
    """Return the key in the file that a variable names, without surrounding blanks; empty if the variable is not set.

    Raises:
        ConfigError: the file can't be read or contains no key; names the variable and the file.
    """
    named = environ.get(variable, "").strip()
    if not named:
        return ""
    try:
        with Path(named).expanduser().open("rb") as file:
            key = file.read(_LONGEST_KEY + 1).decode("utf-8-sig").strip()
    except (OSError, ValueError, RuntimeError) as error:
        why = getattr(error, "strerror", None) or "the file is not UTF-8 text"
        raise ConfigError(f"{variable} names '{named}', which can't be read ({why})") from error
    if not key or len(key) > _LONGEST_KEY:
        raise ConfigError(
            f"{variable} names '{named}', which {'contains no key' if not key else 'is too long for a key'}"
        )
    return key


KEY_FILE = "_API_KEY_FILE"
_LONGEST_KEY = 65_536


def read_dotenv(file: Path) -> dict[str, str]:
    """Return the variables of a `.env` file; empty if there is no file. The last line of a name wins.

    Raises:
        ConfigError: it can't be read or parsed; names the line.
    """
    try:
        # utf-8-sig: editors on Windows write a byte order mark.
        text = file.read_text("utf-8-sig").replace("\r\n", "\n")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file}: the file is not UTF-8 text (byte {error.start}); save it as UTF-8") from error
    except OSError as error:
        raise ConfigError(f"{file}: the file can't be read ({error.strerror})") from error
    return _parse(text, file)


def _parse(text: str, file: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    at = counted = 0
    line = 1
    while at < len(text):
        if blank := _BLANK.match(text, at):
            at = blank.end()
            continue
        # Counted on from the last variable: counting from the start each time would be quadratic.
        line += text.count("\n", counted, at)
        counted = at
        name = _NAME.match(text, at)
        if name is None:
            # The line itself is not quoted: it may be a part of a key, and errors of runs are visible to others.
            raise ConfigError(f"{file}:{line}: expected NAME=VALUE; put a value of several lines between double quotes")
        value, at = _value(text, name.end(), f"{file}:{line}: {name[1]}")
        if "\0" in value:
            raise ConfigError(f"{file}:{line}: the value of {name[1]} has a NUL character; remove it")
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
        raise ConfigError(f"{where}: the value begins with {quote}, and its closing {quote} is missing")
    rest = _BLANK.match(text, quoted.end())
    if rest is None:
        raise ConfigError(f"{where}: only a comment may follow the closing {quote}")
    value = quoted[1]
    if quote == '"':
        value = re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[0]), value, flags=re.DOTALL)
    return value, rest.end()


def shell_of(environ: Mapping[str, str]) -> str:
    """Return the shell: `CALLBOARD_SHELL` or `LOKI_SHELL`, else `SHELL`, else `/bin/sh`."""
    return variable_value("shell", environ)[1] or environ.get("SHELL") or "/bin/sh"
