"""Detection of downloads by package runners (`npx`, `uvx`), which do not count as start time of a server.

The first start of `npx -y SERVER` downloads packages for minutes on a slow line. A start timeout that includes them
aborts the download, and the next attempt starts from the beginning. A runner is finished once its process has become
the server (uvx) or has started it (npx). Until then all processes of the tree belong to the runner or its sandbox.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import trio

from .....supervisors.process import Process

RUNNERS = frozenset(("npx", "bunx", "pnpx", "uvx", "pipx", "npm", "pnpm", "yarn", "uv"))
"""Commands that download the program they start."""

_SCRIPTS = frozenset(("npx", "npm", "npx-cli.js", "npm-cli.js", "pnpm", "pnpm.cjs", "pnpx", "yarn", "yarn.js"))
"""Scripts that an interpreter runs for such a command."""

_AROUND = frozenset(("bwrap", "git", "git-remote-https", "ssh"))
"""The sandbox, and programs with which runners download."""

LOOKS_EVERY = 1.0
MOST = 240.0
"""Seconds that a download may take in addition to the start timeout."""


def is_runner(command: str) -> bool:
    """Return True for a command that may have to download the server before it starts it."""
    return os.path.basename(command) in RUNNERS  # noqa: PTH119 - a text, not a path of this machine


def names_runner(line: str, here: Path) -> bool:
    """Return True if a shell line starts a package runner: by its name, or by the first line of a script. Blocks."""
    for word in line.replace(";", " ").replace("&", " ").replace("|", " ").split():
        word = word.strip("\"'")
        if is_runner(word):
            return True
        try:
            with (here / word).open("rb") as file:
                first = file.readline(500)
        except (OSError, ValueError):
            continue
        if first.startswith(b"#!") and any(is_runner(each) for each in first[2:].decode(errors="replace").split()):
            return True
    return False


async def is_downloading(process: Process) -> bool:
    """Return True while no process of the tree is the server's own."""
    pids = await process.members()
    return bool(pids) and await trio.to_thread.run_sync(_are_runners, pids)


def _are_runners(pids: Iterable[int]) -> bool:
    lines = [_words(pid) for pid in pids]
    return all(is_of_runner(words) for words in lines if words)


def is_of_runner(words: list[str]) -> bool:
    """Return True if a command line is a package runner's, or belongs to a program around or below it."""
    name = os.path.basename(words[0].split(" ")[0])  # noqa: PTH119 - as above; npm calls itself "npm exec PACKAGE"
    if name in RUNNERS | _AROUND:
        return True
    script = next((word for word in words[1:] if not word.startswith("-")), "")
    return name in ("node", "python3", "python") and os.path.basename(script) in _SCRIPTS  # noqa: PTH119 - as above


def _words(pid: int) -> list[str]:
    try:
        data = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # the process has ended
        return []
    return [word.decode(errors="replace") for word in data.split(b"\0") if word]
