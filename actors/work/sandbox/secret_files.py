"""What no process of an agent can read unless the user says so: keys, tokens, passwords, our own configuration.

Of the home directory all hidden files (`.*`) count as secrets, but for a list of toolchains and caches. Files of
variables (`.env*`, `*.env`) are looked for in all of the working directory; examples (`.env.example`) are none.

A bound on that search would leave out the secrets of just those repositories that are large, and no name of a directory
says that there is none in it. So the search has no bound, and its result is used again for a hundred times as long as
it took: it takes one per cent of the time at most. 125,000 files take 0.8 s. A file that is made meanwhile is found
late; docs/sandbox.md says so.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ...io.directories import config_file, journal_dir, state_dir, user_folder
from .policy import real

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
"""Among the hidden files and directories of a home directory (`.*`), those that a process can read: toolchains, caches
of what was fetched from package indexes, and settings of programs that keep their credentials elsewhere."""

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
"""In the home directory: what programs of the user's are started by, or read commands from."""

_OF_CONFIG = (".env", "vault.yaml", "vault.yml", "vault.age", "vault", "identity.txt", "tokens", "oauth")

USED_FOR = 100
"""Times the duration of a search for which its result is used again."""

KEPT = 100
"""Results that are kept."""

LOOKED_UP_AGAIN = 5.0
"""Seconds after which it is looked up which toolchains are there."""

_ENV_FILE = re.compile(r"\.env.*|.+\.env")
_EXAMPLE = re.compile(r"(.*[._-])?(example|sample|template|tmpl|dist|defaults?|schema)([._-].*)?")

_KNOWN: dict[Path, tuple[float, tuple[str, ...]]] = {}
"""For each home directory, until when the result is used, and what it has of `NO_SECRETS`."""

_SEARCHES: dict[str, tuple[float, tuple[str, ...]]] = {}
"""For each directory, until when the result of its search is used, and the result."""


def secret_files(home: Path, config_dir: Path, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return what is hidden anywhere but in the working directory, as it is now, without links."""
    config = config_file(config_dir, environ)
    ours = [config, *(config_dir / name for name in _OF_CONFIG)]
    ours += [user_folder("functions", config_dir, environ) / name for name in ("mcp.json", ".env")]
    ours += [journal_dir(environ), state_dir(environ)]
    return real([*_hidden_in(home), *ours])


def no_secrets(home: Path) -> tuple[str, ...]:
    """Return what can be read in the hidden part of a home directory, without links; see `NO_SECRETS`.

    The answer is up to `LOOKED_UP_AGAIN` seconds old: to look takes a millisecond, and an old one only shows less.
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
    """List what is in a home directory under a name with a dot, but for what is no secret.

    A list of programs that keep credentials would be no boundary: there is always one more.
    """
    found = []
    top = os.path.realpath(home)
    try:
        with os.scandir(top) as entries:
            for entry in entries:
                if not entry.name.startswith(".") or entry.name in NO_SECRETS:
                    continue
                path = os.path.realpath(entry.path) if entry.is_symlink() else entry.path
                # A link that leads out, to a disk or a toolchain, is not what makes the home directory private.
                if path.startswith(f"{top}/"):
                    found.append(path)
    except OSError:
        return []
    return found


def kept_files(home: Path, config_dir: Path) -> tuple[str, ...]:
    """What may not be changed though it lies in what may be written: our agents, and what the user's programs obey."""
    return real([config_dir, *(home / name for name in STARTED)])


def is_env_file(name: str) -> bool:
    """Return whether a file of this name holds variables that may be secrets."""
    return _ENV_FILE.fullmatch(name) is not None and _EXAMPLE.fullmatch(name) is None


def env_files(directories: Sequence[str]) -> tuple[str, ...]:
    """Return the files of variables below these directories, without links. Blocks for as long as a search takes."""
    found: list[str] = []
    for directory in directories:
        until, result = _SEARCHES.get(directory, (0.0, ()))
        began = time.monotonic()
        if began >= until:
            result = tuple(_search(directory))
            now = time.monotonic()
            _SEARCHES.pop(directory, None)
            _SEARCHES[directory] = now + USED_FOR * (now - began), result
            if len(_SEARCHES) > KEPT:
                _SEARCHES.pop(next(iter(_SEARCHES)), None)
        found += result
    return real(found)


def _search(directory: str) -> Iterator[str]:
    waiting = [directory]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    elif ".env" in entry.name and is_env_file(entry.name) and not entry.is_dir():
                        yield entry.path
        except OSError:
            continue  # it can't be listed, by us or by what we start
