"""What no process of an agent can read unless the user says so: keys, tokens, passwords, our own configuration.

Names in the home directory are those that programs keep credentials under. `.env` files are looked for below the
working directory, as far down as is cheap; examples of such files (`.env.example`) are none.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from ...io.directories import config_file, journal_dir, state_dir, user_folder
from .policy import real

OF_HOME = (
    ".ssh",
    ".aws",
    ".azure",
    ".gnupg",
    ".kube",
    ".docker",
    ".netrc",
    ".npmrc",
    ".pypirc",
    ".pgpass",
    ".my.cnf",
    ".git-credentials",
    ".vault-token",
    ".password-store",
    ".terraform.d",
    ".terraformrc",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".gem/credentials",
    ".m2/settings.xml",
    ".config/gcloud",
    ".config/gh",
    ".config/hub",
    ".config/git/credentials",
    ".config/op",
    ".config/rclone",
    ".config/sops",
    ".config/loki",
    ".config/google-chrome",
    ".config/chromium",
    ".config/BraveSoftware",
    ".mozilla",
    ".local/share/keyrings",
    ".bash_history",
    ".zsh_history",
    ".python_history",
    ".psql_history",
)
"""In the home directory."""

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

DEEP, WIDE, MANY = 3, 500, 100
"""How far below a directory `.env` files are looked for, in how many directories, and how many of them count."""

_SKIPPED = frozenset((".git", "node_modules", ".venv", "venv", "__pycache__", "target", "dist", "build"))
_ENV_FILE = re.compile(r"\.env(\..+)?|\.envrc")
_EXAMPLE = re.compile(r"\.env\.(example|sample|template|dist|defaults?|schema)")


def secret_files(home: Path, config_dir: Path, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Those that lie anywhere but in the working directory, as they are now."""
    config = config_file(config_dir, environ)
    ours = [config, *(config_dir / name for name in _OF_CONFIG)]
    ours += [user_folder("functions", config_dir, environ) / name for name in ("mcp.json", ".env")]
    ours += [journal_dir(environ), state_dir(environ)]
    return real([*(home / name for name in OF_HOME), *ours])


def kept_files(home: Path, config_dir: Path) -> tuple[str, ...]:
    """What may not be changed though it lies in what may be written: our agents, and what the user's programs obey."""
    return real([config_dir, *(home / name for name in STARTED)])


def is_env_file(name: str) -> bool:
    """Return whether a file of this name holds variables that may be secrets."""
    return _ENV_FILE.fullmatch(name) is not None and _EXAMPLE.match(name) is None


def env_files(directories: Sequence[str]) -> tuple[str, ...]:
    """The `.env` files below these directories, as far as they are looked for."""
    found: list[str] = []
    looked = 0
    todo = [(directory, 0) for directory in directories]
    while todo and looked < WIDE and len(found) < MANY:
        directory, depth = todo.pop(0)
        looked += 1
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    if is_env_file(entry.name):
                        found.append(entry.path)
                    elif depth < DEEP and entry.name not in _SKIPPED and entry.is_dir(follow_symlinks=False):
                        todo.append((entry.path, depth + 1))
        except OSError:
            continue  # it can't be listed, by us or by what we start
    return real(found[:MANY])
