"""Which of our variables a process in a sandbox has: a list of names.

On it are what programs need to find their way (`PATH`, `HOME`, the language, the terminal, where compilers and package
managers live), what its own file names, and what the user has granted (`env`). What looks like a secret, by its name or
by a password in an address, has to be granted: where its file names one, a person is asked. What was made for the
process it has: the values of an agent's variables, `env` of a server.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path

import msgspec

PLAIN = re.compile(
    r"PATH|HOME|USER|LOGNAME|SHELL|SHLVL|PWD|OLDPWD|HOSTNAME|TERM|TERM_PROGRAM.*|COLORTERM|COLUMNS|LINES|NO_COLOR"
    r"|(FORCE_|CLI)COLOR.*|LANG|LANGUAGE|LC_.*|TZ|TMPDIR|TMP|TEMP|EDITOR|VISUAL|PAGER|CI|DEBIAN_FRONTEND|XDG_.*|WSL_.*"
    r"|(all|ftp|http|https|no)_proxy|(ALL|FTP|HTTP|HTTPS|NO)_PROXY|SSL_CERT_(FILE|DIR)|(CURL|REQUESTS)_CA_BUNDLE"
    r"|VIRTUAL_ENV.*|CONDA_.*|PYENV_.*|PYTHON.*|PIP_.*|UV_.*|POETRY_.*|NODE_.*|NVM_.*|VOLTA_.*|(npm|NPM)_.*|PNPM_.*"
    r"|JAVA_.*|GO[A-Z]*|CARGO_.*|RUST.*|RBENV_.*|GEM_.*|BUNDLE_.*|ASDF_.*|MISE_.*|NIX_.*|DOTNET_.*|PERL5?LIB|LUA_.*"
    r"|LD_LIBRARY_PATH|LIBRARY_PATH|CPATH|C_INCLUDE_PATH|PKG_CONFIG_.*|CC|CXX|CFLAGS|CXXFLAGS|LDFLAGS|MAKEFLAGS"
    r"|OMP_.*|OPENBLAS_.*|MKL_.*|CUDA_.*|HF_HOME|GIT_(AUTHOR|COMMITTER)_.*|LLM_.*|CALLBOARD_.*|LOKI_.*|CLAUDE_PROJECT_DIR"
    r"|AUTO_CONFIRM"
)

_SECRET_NAME = re.compile(
    r"KEY|TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|AUTH|COOKIE|SESSION|DATABASE_URL|_DSN|CONNECTION_STRING|WEBHOOK"
)
_NO_SECRETS = re.compile(r"CALLBOARD_CALL_KEY|XDG_SESSION_.*|DESKTOP_SESSION|SESSION_MANAGER|COLORTERM|GIT_AUTHOR_.*")
_DOORS = frozenset(("SSH_AUTH_SOCK", "SSH_AGENT_PID", "GPG_AGENT_INFO", "DBUS_SESSION_BUS_ADDRESS", "DOCKER_HOST"))
"""Variables that lead to programs of the user's which sign, connect or start what they are asked to."""

_PASSWORD = re.compile(r"\w://[^/\s@]*:[^/\s@]+@")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

LONGEST_FILE = 256 * 1024
"""Bytes of a file in which names are looked for."""

MOST_FILES = 50
CODE = (".sh", ".bash", ".py", ".ts", ".js", ".mjs", ".rb", ".pl")


def looks_secret(name: str, value: str) -> bool:
    """Whether a variable is taken for a secret."""
    if name in _DOORS or _PASSWORD.search(value):
        return True
    return _SECRET_NAME.search(name.upper()) is not None and not _NO_SECRETS.fullmatch(name)


def withheld(environ: Mapping[str, str], granted: Sequence[str], named: Iterable[str] = ()) -> frozenset[str]:
    """Those of these variables that a process does not have.

    Args:
        granted: names, or patterns of names, that it has whatever they look like.
        named: names that its own file holds.
    """
    named = frozenset(named)
    return frozenset(
        name
        for name, value in environ.items()
        if not any(fnmatchcase(name, pattern) for pattern in granted)
        and (looks_secret(name, value) or not (PLAIN.fullmatch(name) or name in named))
    )


class Program(msgspec.Struct, frozen=True):
    """The text of a program.

    Attributes:
        names: its words, among which may be names of variables.
        sum: of it; "" for one that is no file.
    """

    names: frozenset[str] = frozenset()
    sum: str = ""


NO_PROGRAM = Program()


def program_in(place: Path | None) -> Program:
    """What is in a program's file, or in a directory, whose programs may call one another. Reads files."""
    if place is None:
        return NO_PROGRAM
    found: set[str] = set()
    sum = hashlib.sha256()
    for file in islice(_files(place), MOST_FILES):
        with contextlib.suppress(OSError), file.open("rb") as opened:
            text = opened.read(LONGEST_FILE)
            sum.update(text)
            found.update(_WORD.findall(text.decode("utf-8", "replace")))
    return Program(frozenset(found), sum.hexdigest())


def _files(program: Path) -> Iterator[Path]:
    if not program.is_dir():
        yield program
        return
    with contextlib.suppress(OSError):
        yield from sorted(file for file in program.iterdir() if file.suffix in CODE)
