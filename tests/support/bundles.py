"""A configuration directory, git repositories that tests fill, and a person who says what the test says."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from callboard.actors.work.bundles import manage
from callboard.actors.work.bundles.manage import InstallPrompts, InstallResult, Wishes
from callboard.protocol.errors import ActorFailed, NobodyToAsk
from callboard.supervisors import Actor, Root

SILENT = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@example.org",
}

Files = dict[str, str]


class Repository:
    """A git repository of a test."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True)
        self.git("init", "-q", "-b", "main")

    @property
    def url(self) -> str:
        return self.path.as_uri()

    def git(self, *arguments: str) -> str:
        env = {**os.environ, **SILENT}
        done = subprocess.run(["git", *arguments], cwd=self.path, env=env, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def tree(self, *rows: str) -> str:
        """Make a tree of rows as `ls-tree` prints them; its id."""
        text = "".join(f"{row}\n" for row in rows)
        done = subprocess.run(["git", "mktree"], cwd=self.path, input=text, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def commit(self, files: Files, *, without: tuple[str, ...] = ()) -> str:
        """Write these files, remove those, and commit; the commit."""
        put(self.path, files)
        for name in without:
            (self.path / name).unlink()
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", "a")
        return self.git("rev-parse", "HEAD")


def put(directory: Path, files: Files) -> None:
    """Write files below a directory; those that begin with `#!` can be started."""
    for name, text in files.items():
        file = directory / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        if text.startswith("#!"):
            file.chmod(0o755)


def files_below(directory: Path) -> Files:
    """All files of a directory but the record and what git keeps."""
    found = (path for path in directory.rglob("*") if path.is_file() and ".git" not in path.parts)
    return {str(path.relative_to(directory)): path.read_text() for path in found if path.name != "installed.json"}


class BundleInstaller:
    """Installs into a configuration directory.

    Attributes:
        base: it.
        told: what the person was told.
        asked: what the person was asked.
        answers: what the person says, in order; an exception is raised; yes, when there are none left.
    """

    def __init__(self, base: Path, root: Root, here: Path) -> None:
        self.base = base
        self.here = here
        self.told: list[str] = []
        self.asked: list[str] = []
        self.answers: list[bool | Exception] = []
        self.environ = {**os.environ, **SILENT}
        self._root = root

    async def install(self, text: str, *filters: str, **wishes: Any) -> InstallResult:
        return await self._played(
            lambda me: manage.install(
                me, self.base, text, Wishes(filters=filters, **wishes), self.person, self.environ, here=self.here
            )
        )

    async def update(self, name: str, **wishes: Any) -> InstallResult:
        return await self._played(
            lambda me: manage.update(me, self.base, name, Wishes(**wishes), self.person, self.environ)
        )

    async def remove(self, name: str, **wishes: Any) -> InstallResult:
        return await self._played(lambda _me: manage.remove(self.base, name, Wishes(**wishes), self.person))

    @property
    def person(self) -> InstallPrompts:
        async def ask(text: str) -> bool:
            self.asked.append(text)
            said = self.answers.pop(0) if self.answers else True
            if isinstance(said, Exception):
                raise said
            return said

        return InstallPrompts(tell=self.told.append, ask=ask)

    @property
    def files(self) -> Files:
        return files_below(self.base)

    def nobody(self) -> None:
        """No person is there."""
        self.answers = [NobodyToAsk("nobody") for _ in range(9)]

    async def _played(self, work: Callable[[Actor], Awaitable[InstallResult]]) -> InstallResult:
        async def body(me: Actor) -> InstallResult:
            return await work(me)

        ref = self._root.spawn(body, name="install", link=False)
        try:
            return await ref.result()
        except ActorFailed as failed:
            raise (failed.__cause__ or failed) from None


AGENT = "name: clerk\ndescription: Sorts letters.\ninstructions: Sort.\nglobal_tools: [execute_command]\n"
TOOL = '#!/usr/bin/env bash\n# @describe Rings.\n# @option --how!\nmain() { echo "$argc_how" >> "$LLM_OUTPUT"; }\n'
MCP = '{"mcpServers": {"docs": {"command": "docs-server", "args": ["${DOCS_TOKEN}"]}}}'
BUNDLE = {
    "README.md": "ours\n",
    "agents/clerk/config.yaml": AGENT,
    "agents/clerk/tools.py": 'def stamp():\n    """Stamps."""\n',
    "roles/kind.md": "You are kind.\n",
    "roles/terse.md": "You are terse.\n",
    "macros/greet.yaml": "steps: [.role kind, hello]\n",
    "functions/tools/ring.sh": TOOL,
    "mcp.json": MCP,
}
TAKEN = {path: text for path, text in BUNDLE.items() if path not in ("README.md", "mcp.json")}
