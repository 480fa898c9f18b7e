"""Paths that Callboard's own tools change only with the user's consent, because sandboxed processes can't change them.

`fs_write` and similar tools run in Callboard, outside of any sandbox. Without this check, `--yes` would let a model use
them to write files that the sandbox protects from every process: a git hook, a shell start file, an agent's file.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ....protocol.errors import ToolFailed
from .git_directories import is_git_directory
from .policy import is_below, real
from .secret_files import is_env_file, protected_files, secret_files
from .secret_files import no_secrets as no_secret_files

OF_GIT = "Processes in the sandbox may not change this: git runs commands that it finds there"
OF_PROGRAMS = "Processes in the sandbox may not change this: your programs read it when they start"
OF_SECRETS = "Processes in the sandbox may not change this: it is a secret"


UNREADABLE = "Processes in the sandbox can't read this: it is a secret"


def refused(tool: str) -> ToolFailed:
    """Return the error of a call that the user refused."""
    return ToolFailed(f"'{tool}' was not run: the user refused")


def nobody_to_ask(tool: str, why: str) -> ToolFailed:
    """Return the error of a call that needs an answer while no terminal or client is attached."""
    return ToolFailed(
        f"'{tool}' was not run: it needs a person's answer, and no terminal or client is attached. {why}. --yes and "
        f"--allow do not cover it"
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
    no_secrets = real(shown)
    for path in paths:
        if _is_of_git(path):
            return OF_GIT
        # A directory that holds a protected file can't be removed either.
        if any(is_below(path, each) or is_below(each, path) for each in kept):
            return OF_PROGRAMS
        if path in no_secrets:
            continue
        if any(is_below(path, each) or is_below(each, path) for each in secrets if each not in no_secrets):
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
    no_secrets = (*real(shown), *no_secret_files(home))
    secrets = secret_files(home, config_dir, environ)
    for path in paths:
        if any(is_below(path, each) for each in no_secrets):
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
