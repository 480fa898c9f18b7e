"""A hundred ordinary coding tasks whose commands really run in the default sandbox.

    python sandbox_tasks.py BACKEND

prints `{"tasks": N, "needless": [...]}`. A task is needless trouble if one of its commands fails, or if the sandbox
has a question or a note about it. The stated allow list: the hosts of the package index (`NETWORK`). Landlock can't
tell hosts apart, so there it is `network: on`. It needs no pytest, so that an ordinary user can run it.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import trio

from callboard.actors.io.temporary import LazyDirectory, ProcessDirectoryBase
from callboard.actors.work.sandbox.backends import VARIABLE, backend
from callboard.actors.work.sandbox.grants import Grants
from callboard.actors.work.sandbox.policy import Nature
from callboard.actors.work.sandbox.run_sandbox import Sandbox
from callboard.protocol.sandbox import UserSandbox
from callboard.supervisors import Actor, Root
from callboard.supervisors.process import run_process

NETWORK = ["pypi.org", "files.pythonhosted.org"]

EDITS = [
    ["printf 'VALUE = 3\\n' > src/a.py"],
    ["sed -i s/1/2/ src/a.py", "git diff --stat"],
    ["python3 -c \"open('src/d.py', 'w').write('z = 1')\"", "cat src/d.py"],
    ["cp -p src/a.py src/c.py && chmod 755 src/c.py", "touch -d 2001-01-01 src/c.py"],
    ["git mv src/b.py src/e.py", "grep -rn VALUE src"],
]
CHECKS = [
    ["python3 -m unittest discover -q -s tests"],
    ["make -s test"],
    ["python3 -m compileall -q src && python3 src/a.py"],
    ["./build.sh && tar czf build/out.tgz src"],
    ["find . -name '*.py' | xargs wc -l", "mktemp -d"],
]
ENDS = [
    ["git add -A", "git commit -q -m done", "git log --oneline"],
    ["git stash -q -u", "git checkout -q -b topic", "git stash pop -q", "git commit -q -a -m t --allow-empty"],
    ["python3 -m pip install -q --target vendor six", "PYTHONPATH=vendor python3 -c 'import six'"],
    ["git commit -q -a -m one --allow-empty", "git rebase -q HEAD~1", "git worktree add -q -b other trees/other"],
]
FILES = {
    "src/a.py": "VALUE = 1\n",
    "src/b.py": "print(1)\n",
    "tests/test_a.py": "import unittest\n\n\nclass Test(unittest.TestCase):\n    def test(self):\n        pass\n",
    "Makefile": "test: build/out\n\tpython3 -m unittest discover -q -s tests\nbuild/out: src/a.py\n"
    "\tmkdir -p build && cp src/a.py build/out\n",
    "build.sh": "#!/bin/sh\nmkdir -p build && cp src/*.py build\n",
    ".env": "TOKEN=secret\n",
    ".gitignore": ".env\nbuild/\nvendor/\ntrees/\n__pycache__/\n",
}


def tasks() -> Iterator[list[str]]:
    """Yield a hundred tasks: an edit, a check, and an end."""
    for edit, check, end in itertools.product(EDITS, CHECKS, ENDS):
        yield [*edit, *check, *end]


def run_tasks(kind: str) -> dict[str, Any]:
    """Run all tasks, each in a repository of its own."""
    os.environ[VARIABLE] = kind
    way = backend()
    if way.kind != kind:
        return {"tasks": 0, "why_not": "; ".join(way.why_not)}
    base = Path(tempfile.mkdtemp(prefix="callboard-tasks-", dir="/var/tmp"))
    try:
        return trio.run(_run_tasks, base, NETWORK if kind == "bubblewrap" else "on")
    finally:
        shutil.rmtree(base, ignore_errors=True)


async def _run_tasks(base: Path, network: object) -> dict[str, Any]:
    chosen, needless = list(tasks()), []
    template, config = base / "template", base / "config"
    config.mkdir()
    for name, text in FILES.items():
        (template / name).parent.mkdir(parents=True, exist_ok=True)
        (template / name).write_text(text)
    (template / "build.sh").chmod(0o755)
    subprocess.run(
        "git init -q && git config user.email a@b.c && git config user.name a && git add -A && git commit -q -m first",
        shell=True,
        cwd=template,
        check=True,
    )
    temporary = LazyDirectory("run-1", lambda: [ProcessDirectoryBase(base / "temporary")])

    async def run(me: Actor, number: int, commands: list[str]) -> None:
        workspace = base / f"workspace-{number}"
        shutil.copytree(template, workspace, symlinks=True)
        sandbox = Sandbox(
            msgspec.convert({"profile": "workspace", "network": network}, UserSandbox),
            here=workspace,
            config_dir=config,
            environ=dict(os.environ),
            temporary=temporary,
            grants=Grants(None, None),
        )
        sandbox.works_under(me)
        for command in commands:
            held = await sandbox.held(me, Nature(name="execute_command"))
            assert held is not None
            done = await run_process(me, ["bash", "-c", command], cwd=workspace, timeout=300, confinement=held)
            _, note = await held.afterwards(me, done.stdout.decode(errors="replace") + done.stderr_tail)
            if done.status or note:
                needless.append(f"{command}: {done.status} {done.stderr_tail[-300:]} {note}")
                break
        shutil.rmtree(workspace)

    async def body(me: Actor) -> None:
        for number, commands in enumerate(chosen):
            await run(me, number, commands)

    async with Root() as root:
        await root.spawn(body).wait()
    return {"tasks": len(chosen), "needless": needless}


if __name__ == "__main__":
    print(json.dumps(run_tasks(sys.argv[1])))
