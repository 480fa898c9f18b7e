"""A snapshot of the project's files: what has changed since, and which tests were written over.

It is kept in the state of the graph, which outlives a killed process, as a compressed text.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
import zlib
from pathlib import Path

from project import SKIPPED

MOST_FILES = 20_000
LARGEST = 2_000_000
"""Bytes of a file that are compared; of a larger one size and time are."""

TEST_FILE = re.compile(
    r"(?:^|/)(?:tests?|__tests__|specs?)/|(?:^|/)(?:test_[^/]*|[^/]*_test|conftest|tests?)\.py$"
    r"|[._-](?:test|spec)\.[cm]?[jt]sx?$|_test\.go$|_spec\.rb$|Tests?\.(?:java|kt|cs)$|_test\.exs?$"
)
_IMPORT = re.compile(r"\s*(?:from|import|use|require)\b|.*\brequire\(")


def take(directory: Path) -> str | None:
    """A snapshot as text; None if the project has too many files."""
    files = _listed(directory)
    if files is None:
        return None
    hashes = {name: _hash(directory / name) for name in files}
    tests = {name: _lines(directory / name) for name in files if TEST_FILE.search(name)}
    packed = zlib.compress(json.dumps({"files": hashes, "tests": tests}).encode(), 9)
    return base64.b85encode(packed).decode()


class Since:
    """What has changed since a snapshot.

    Attributes:
        changed, created, deleted: paths.
        weakened: test files that have lost lines, imports not counted, or are gone.
    """

    def __init__(self, snapshot: str, directory: Path) -> None:
        before = json.loads(zlib.decompress(base64.b85decode(snapshot)))
        old: dict[str, str] = before["files"]
        tests: dict[str, list[str]] = before["tests"]
        new = {name: _hash(directory / name) for name in _listed(directory) or ()}
        self.changed = sorted(name for name in old if name in new and old[name] != new[name])
        self.created = sorted(new.keys() - old.keys())
        self.deleted = sorted(old.keys() - new.keys())
        lost = [name for name in self.changed if name in tests and not _keeps(tests[name], _lines(directory / name))]
        self.weakened = sorted([*lost, *(name for name in self.deleted if name in tests)])

    def __bool__(self) -> bool:
        return bool(self.changed or self.created or self.deleted)


def _keeps(old: list[str], new: list[str]) -> bool:
    """Whether all old lines are still there, in their order."""
    rest = iter(new)
    return all(line in rest for line in old)


def _lines(file: Path) -> list[str]:
    try:
        text = file.read_text(encoding="utf-8", errors="replace") if file.stat().st_size <= LARGEST else ""
    except OSError:
        return []
    return [f"{zlib.crc32(line.encode()):x}" for line in text.splitlines() if line.strip() and not _IMPORT.match(line)]


def _hash(file: Path) -> str:
    try:
        status = file.lstat()
        if not file.is_file() or status.st_size > LARGEST:
            return f"{status.st_size}-{status.st_mtime_ns}"
        return hashlib.sha256(file.read_bytes()).hexdigest()[:12]
    except OSError:
        return ""


def _listed(directory: Path) -> list[str] | None:
    """The files of the project; in a git repository those that it does not ignore."""
    names = _of_git(directory)
    if names is None:
        names = []
        for path, directories, files in os.walk(directory):
            directories[:] = [name for name in directories if not name.startswith(".") and name not in SKIPPED]
            names += [os.path.relpath(Path(path) / name, directory) for name in files if not name.endswith(".pyc")]
            if len(names) > MOST_FILES:
                break
    return None if len(names) > MOST_FILES else names


def _of_git(directory: Path) -> list[str] | None:
    if shutil.which("git") is None:
        return None
    # Settings of the repository could have git start a program.
    argv = ["git", "-c", "core.fsmonitor=false", "ls-files", "-z", "-c", "-o", "--exclude-standard"]
    try:
        done = subprocess.run(argv, cwd=directory, stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return None
    if done.returncode:
        return None
    names = {os.fsdecode(name) for name in done.stdout.split(b"\0") if name}
    generated = re.compile(r"(?:^|/)(?:__pycache__|node_modules|\.pytest_cache|target)/")
    return sorted(name for name in names if not generated.search(name) and os.path.lexists(directory / name))
