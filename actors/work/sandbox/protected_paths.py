"""Protected paths: files that no process of an agent can read or change without the user's permission.

`secret_files` are keys, tokens, passwords and own settings. All hidden files of the home directory (`.*`) count as
secrets, except a list of toolchains and caches. Files of variables (`.env*`, `*.env`) are searched in the whole working
directory; examples (`.env.example`) do not count.

A limit on that search would miss the secrets of exactly the large repositories, and no directory name guarantees that
there is none in it. So the search has no limit, and its result is reused for a hundred times as long as it took: the
search takes one per cent of the time at most. 125,000 files take 0.8 s. A file that is created meanwhile is found late,
as docs/sandbox.md states.

`fs_write` and similar tools run in Callboard, outside of any sandbox. Without `why_unchangeable`, `--yes` would let a
model use them to write files that the sandbox protects from every process: a git hook, a shell start file, an agent's
file.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from ....protocol.errors import ToolFailed
from ...io.directories import config_file, journal_dir, state_dir, user_folder
from .git_directories import is_git_directory
from .policy import EnvFile, is_below, real

NO_SECRETS = (
    ".asdf",
    ".bun",
    ".cabal",
    ".cargo/bin",
    ".cargo/config.toml",
    ".cargo/env",
    ".cargo/git",
    ".cargo/registry",
    ".conda/envs",
    ".conda/pkgs",
    ".deno",
    ".dotnet",
    ".editorconfig",
    ".fonts",
    ".fnm",
    ".gem/ruby",
    ".ghcup",
    ".gitattributes",
    ".gitconfig",
    ".gitignore",
    ".gitignore_global",
    ".gradle/caches",
    ".gradle/wrapper",
    ".hushlogin",
    ".ivy2/cache",
    ".juliaup",
    ".m2/repository",
    ".m2/wrapper",
    ".nix-defexpr",
    ".nix-profile",
    ".node-version",
    ".npm",
    ".npm-global",
    ".nuget/packages",
    ".nvm",
    ".opam",
    ".pnpm-store",
    ".pyenv",
    ".python-version",
    ".rbenv",
    ".rustup",
    ".rvm",
    ".sdkman",
    ".stack",
    ".terminfo",
    ".tool-versions",
    ".virtualenvs",
    ".volta",
    ".yarn/berry",
    ".cache/Cypress",
    ".cache/bazel",
    ".cache/bun",
    ".cache/ccache",
    ".cache/deno",
    ".cache/electron",
    ".cache/fontconfig",
    ".cache/go-build",
    ".cache/golangci-lint",
    ".cache/matplotlib",
    ".cache/ms-playwright",
    ".cache/mypy",
    ".cache/node",
    ".cache/node-gyp",
    ".cache/pip",
    ".cache/pnpm",
    ".cache/pre-commit",
    ".cache/puppeteer",
    ".cache/pypoetry",
    ".cache/ruff",
    ".cache/sccache",
    ".cache/torch",
    ".cache/uv",
    ".cache/yarn",
    ".config/git/attributes",
    ".config/git/config",
    ".config/git/ignore",
    ".config/nix",
    ".config/uv/uv.toml",
    ".local/bin",
    ".local/lib",
    ".local/pipx",
    ".local/share/fnm",
    ".local/share/fonts",
    ".local/share/mise",
    ".local/share/pipx",
    ".local/share/pnpm",
    ".local/share/pypoetry",
    ".local/share/uv",
    ".local/share/virtualenv",
    ".local/share/virtualenvs",
    ".local/state/nix",
)
"""Readable entries among the hidden files and directories of a home directory (`.*`): toolchains, caches of downloads
from package indexes, and settings of programs that store their credentials in another file."""

STARTED = (
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".bash_logout",
    ".profile",
    ".zshrc",
    ".zshenv",
    ".zprofile",
    ".zlogin",
    ".xprofile",
    ".xsession",
    ".xinitrc",
    ".pam_environment",
    ".inputrc",
    ".tmux.conf",
    ".screenrc",
    ".gitconfig",
    ".vimrc",
    ".vim",
    ".emacs",
    ".emacs.d",
    ".config",
    ".local/bin",
    ".local/share/applications",
    ".local/share/systemd",
    ".vscode",
    ".cursor",
    ".claude",
    ".codex",
    "bin",
)
"""Entries of the home directory that start the user's programs, or from which they read commands."""

_OF_CONFIG = (".env", "vault.yaml", "vault.yml", "vault.age", "vault", "identity.txt", "tokens", "oauth")

USED_FOR = 100
"""Factor: a search result is reused for this many times the duration of the search."""

KEPT = 100
"""Cached results at most."""

LOOKED_UP_AGAIN = 5.0
"""Seconds after which the list of existing toolchains is read again."""

_ENV_FILE = re.compile(r"\.env.*|.+\.env")
_EXAMPLE = re.compile(r"(.*[._-])?(example|sample|template|tmpl|dist|defaults?|schema)([._-].*)?")

ENV_PATHS = rf"(?s:.*)/(?!{_EXAMPLE.pattern}\Z)(?:\.env[^/]*|[^/]+\.env)\Z"
"""Regular expression for paths of files of variables."""

_KNOWN: dict[Path, tuple[float, tuple[str, ...]]] = {}
"""Per home directory: the time until which the result is used, and its entries of `NO_SECRETS`."""

_SEARCHES: dict[str, tuple[float, tuple[EnvFile, ...]]] = {}
"""Per directory: the time until which the result of its search is used, and the result."""


def secret_files(home: Path, config_dir: Path, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the paths that are hidden in every place but the working directory, without links. Reads directories."""
    config = config_file(config_dir, environ)
    ours = [config, *(config_dir / name for name in _OF_CONFIG)]
    ours += [user_folder("functions", config_dir, environ) / name for name in ("mcp.json", ".env")]
    ours += [journal_dir(environ), state_dir(environ)]
    return tuple(dict.fromkeys((*_hidden_in(home), *real(ours))))


def no_secrets(home: Path) -> tuple[str, ...]:
    """Return the readable entries in the hidden part of a home directory, without links; see `NO_SECRETS`.

    The answer is up to `LOOKED_UP_AGAIN` seconds old: a search takes a millisecond, and an old answer only shows less.
    """
    until, found = _KNOWN.get(home, (0.0, ()))
    if time.monotonic() < until:
        return found
    try:
        there = frozenset(os.listdir(home))
    except OSError:
        return ()
    found = real(home / name for name in NO_SECRETS if name.split("/", 1)[0] in there)
    if len(_KNOWN) >= KEPT:
        _KNOWN.clear()
    _KNOWN[home] = time.monotonic() + LOOKED_UP_AGAIN, found
    return found


def _hidden_in(home: Path) -> list[str]:
    """List the entries of a home directory whose names begin with a dot, except toolchains and caches (`NO_SECRETS`).

    A list of programs that store credentials would be no boundary: it is never complete. The paths are without links. A
    link to a missing file is left out.
    """
    found = []
    top = os.path.realpath(home)
    try:
        with os.scandir(top) as entries:
            for entry in entries:
                if not entry.name.startswith(".") or entry.name in NO_SECRETS:
                    continue
                is_link = entry.is_symlink()
                path = os.path.realpath(entry.path) if is_link else entry.path
                # A link that leads out, to a disk or a toolchain, is not part of the home directory's privacy.
                if path.startswith(f"{top}/") and not (is_link and not os.path.exists(path)):
                    found.append(path)
    except OSError:
        return []
    return found


def protected_files(home: Path, config_dir: Path) -> tuple[str, ...]:
    """Return paths that stay read-only inside writable directories: agents, and start files of the user's programs."""
    return real([config_dir, *(f"{home}/{name}" for name in STARTED)])


def is_env_file(name: str) -> bool:
    """Return True for the name of a file of variables (`.env*`, `*.env`), unless it is that of an example."""
    return _ENV_FILE.fullmatch(name) is not None and _EXAMPLE.fullmatch(name) is None


def env_files(directories: Sequence[str]) -> tuple[EnvFile, ...]:
    """Return the files of variables below these directories. Blocks for the duration of a search.

    A result is reused for `USED_FOR` times as long as its search took, while all files in it are in their places.

    Args:
        directories: without links.
    """
    found: dict[str, EnvFile] = {}
    for directory in directories:
        until, result = _SEARCHES.get(directory, (0.0, ()))
        began = time.monotonic()
        if began >= until or not _are_there(result):
            result = tuple(_identified(_search(directory)))
            now = time.monotonic()
            # Inserted again at the end, so that the first entry is the oldest.
            _SEARCHES.pop(directory, None)
            _SEARCHES[directory] = now + USED_FOR * (now - began), result
            if len(_SEARCHES) > KEPT:
                _SEARCHES.pop(next(iter(_SEARCHES)), None)
        found |= {each.path: each for each in result}
    return tuple(found.values())


def _are_there(files: Sequence[EnvFile]) -> bool:
    """Return True if all files are in their places: a process may rename a directory with such a file in it."""
    above, identity = "", (0, 0)
    for each in files:
        directory = os.path.dirname(each.path)
        try:
            if directory != above:
                above, identity = directory, _identity(directory)
            os.lstat(each.path)
        except OSError:
            return False
        if identity != each.directory:
            return False
    return True


def _identified(paths: Iterable[str]) -> Iterator[EnvFile]:
    for path in paths:
        try:
            yield EnvFile(path, _identity(os.path.dirname(path)))
        except OSError:
            continue  # removed meanwhile


def _identity(directory: str) -> tuple[int, int]:
    status = os.stat(directory)
    return status.st_dev, status.st_ino


def _search(directory: str) -> Iterator[str]:
    waiting = [directory]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    elif ".env" in entry.name and is_env_file(entry.name):
                        # bubblewrap mounts over the target of a link, so the target is the path to cover.
                        if not entry.is_symlink():
                            yield entry.path
                        elif entry.is_file():
                            yield os.path.realpath(entry.path)
        except OSError:
            continue  # not listable by Callboard, nor by processes that it starts


OF_GIT = "Processes in the sandbox may not change this path: git runs commands from it"
OF_PROGRAMS = "Processes in the sandbox may not change this path: your programs read it when they start"
OF_SECRETS = "Processes in the sandbox may not change this path: it is a secret"
UNREADABLE = "Processes in the sandbox can't read this path: it is a secret"


def refused(tool: str) -> ToolFailed:
    """Return the tool error of a call that the user refused."""
    return ToolFailed(f"'{tool}' was not run: the user refused")


def nobody_to_ask(tool: str, why: str) -> ToolFailed:
    """Return the error of a call that needs an answer while no terminal or client is attached."""
    return ToolFailed(
        f"'{tool}' was not run: it needs approval by a user, and no terminal or client is attached. {why}. "
        "--yes and --allow do not approve it"
    )


def why_unchangeable(
    paths: Iterable[str],
    *,
    home: Path,
    config_dir: Path,
    environ: Mapping[str, str],
    shown: Sequence[str],
    workspaces: Sequence[str] = (),
) -> str:
    """Return why no process in a sandbox may change one of these paths; "" if there is no reason. Reads directories.

    Args:
        paths: absolute forms of one path, with and without its links.
        shown: paths that the user declares as no secrets.
        workspaces: directories that processes may write, also in the hidden part of a home directory.
    """
    works_in = real(workspaces)

    def outside(found: Iterable[str]) -> list[str]:
        return [each for each in found if not any(is_below(workspace, each) for workspace in works_in)]

    kept, secrets = outside(protected_files(home, config_dir)), outside(secret_files(home, config_dir, environ))
    shown_paths = real(shown)
    for path in paths:
        if _is_of_git(path):
            return OF_GIT
        # A directory that holds a protected file can't be removed either.
        if any(is_below(path, each) or is_below(each, path) for each in kept):
            return OF_PROGRAMS
        if path in shown_paths:
            continue
        if any(is_below(path, each) or is_below(each, path) for each in secrets if each not in shown_paths):
            return OF_SECRETS
        if is_env_file(os.path.basename(path)) and os.path.lexists(path):
            return OF_SECRETS
    return ""


def why_unreadable(
    paths: Iterable[str], *, home: Path, config_dir: Path, environ: Mapping[str, str], shown: Sequence[str]
) -> str:
    """Return why no process in a sandbox can read one of these files; "" if there is no reason. Reads directories.

    The arguments have the same meaning as in `why_unchangeable`.
    """
    shown_paths = (*real(shown), *no_secrets(home))
    secrets = secret_files(home, config_dir, environ)
    for path in paths:
        if any(is_below(path, each) for each in shown_paths):
            continue
        if is_env_file(os.path.basename(path)) or any(is_below(path, each) for each in secrets):
            return UNREADABLE
    return ""


def _is_of_git(path: str) -> bool:
    """Return True if a path is, or is in, a git directory or a file `.git`, in any letter case."""
    if any(part.lower() == ".git" for part in path.split("/")):
        return True
    while (path := os.path.dirname(path)) != "/":
        if is_git_directory(path):
            return True
    return False
