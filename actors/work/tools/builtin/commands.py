"""execute_command, execute_py_code and execute_sql_code: programs under the process supervisor.

They inherit the environment and start in the working directory, the base of relative paths for `fs_*`. They have
neither a terminal nor input. An exit status other than 0 is not a failure of the tool, but a result that the model
reads.

SQL runs on SQLite. The database is the first of: the `database` argument (a file within the allowed paths), `USQL_DSN`
as Loki's tool reads it (`sqlite3:path`, `sqlite3:///absolute/path`), `DATABASE_URL` as most programs read it
(`sqlite:///relative/path`, `sqlite:////absolute/path`). Statements cannot open other files.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from .....protocol.errors import ToolFailed
from ..tool import Arguments
from .allowed_paths import AllowedPaths, Setting, in_thread
from .running import run_program

if TYPE_CHECKING:
    from .....supervisors import Actor

WORKERS = Path(__file__).with_name("workers")

ROWS = 500
"""Maximum rows of one statement in the result."""

_JOINED = 'exec 2>&1; exec bash -c "$1" bash'
"""Shell line with one pipe for stdout and stderr, so that errors appear where they occurred.

The command is an argument, never part of this text.
"""

_DSN = re.compile(r"^(?:sqlite3?|sq):(.*)$", re.DOTALL)


async def execute_command(me: Actor, setting: Setting, arguments: Arguments) -> str:
    """Run a command with bash."""
    command = arguments["command"]
    if "\0" in command:
        raise ToolFailed("a command can't contain a NUL character")
    if not command.strip():
        raise ToolFailed("the command is empty")
    ran = await run_program(me, "execute_command", ["bash", "-c", _JOINED, "bash", command], setting)
    return ran.told()


async def execute_py_code(me: Actor, setting: Setting, arguments: Arguments) -> str:
    """Run code with the Python of the working directory's .venv, or else of the PATH."""
    own = setting.paths.here / ".venv" / "bin" / "python"
    python = str(own) if own.is_file() else shutil.which("python3", path=setting.environ.get("PATH")) or sys.executable
    # No isolated mode: the code runs in the user's own Python environment.
    argv = [python, "-B", str(WORKERS / "python_code.py")]
    ran = await run_program(me, "execute_py_code", argv, setting, input=_utf8(arguments["code"]))
    return ran.told()


async def execute_sql_code(me: Actor, setting: Setting, arguments: Arguments) -> str:
    """Run statements; the result contains the rows of each as a small table."""
    named = arguments.get("database", "")
    if named:
        database = await in_thread(lambda: _database(setting.paths, named))
    else:
        database = configured(setting.environ)
    task = msgspec.json.encode({"database": database, "code": _utf8(arguments["code"]).decode(), "rows": ROWS})
    # Isolated mode: neither the user's site packages nor a module in the working directory may replace an import.
    argv = [sys.executable, "-I", "-S", "-B", str(WORKERS / "sql.py")]
    ran = await run_program(me, "execute_sql_code", argv, setting, input=task)
    if ran.status != 0:
        raise ToolFailed(ran.text.strip() or "the statements failed")
    return ran.told()


def configured(environ: Mapping[str, str]) -> str:
    """Return the database that the user has configured: a path, or `:memory:`.

    Raises:
        ToolFailed: none is configured, or it is not SQLite.
    """
    for name in ("USQL_DSN", "DATABASE_URL"):
        dsn = environ.get(name, "").strip()
        if not dsn:
            continue
        match = _DSN.match(dsn)
        if match is None and (":" in dsn and dsn != ":memory:"):
            scheme = dsn.split(":", 1)[0]
            raise ToolFailed(f"{name} names a database of the kind '{scheme}'; only SQLite is supported (sqlite3:PATH)")
        path = dsn if match is None else match[1].split("?", 1)[0]
        if path.startswith("//"):
            path = path[3:] if name == "DATABASE_URL" else path[2:]
        return path or ":memory:"
    raise ToolFailed("there is no database: give `database`, a SQLite file, or have the user set USQL_DSN=sqlite3:PATH")


def _database(paths: AllowedPaths, text: str) -> str:
    path = paths.find(text).path
    if path.exists() and not path.is_file():
        raise ToolFailed(f"'{text}' is not a file, so it is no database")
    return str(path)


def _utf8(code: str) -> bytes:
    try:
        return code.encode()
    except UnicodeEncodeError as error:
        raise ToolFailed(f"the code can't be written as UTF-8: {error}") from error
