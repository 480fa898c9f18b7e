"""Files of variables in a workspace, which no process reads."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from sandbox_world import SECRET, need, world

from callboard.actors.work.sandbox.secret_files import env_files

NAMES = (".env", ".envrc", ".env.local", ".env.production", ".env_old", "prod.env", "a.b.env", ".env.py")
NONE = (
    ".env.example",
    ".env.sample",
    "example.env",
    ".env.local.example",
    "template.env",
    "env",
    "x.envelope",
    "env.ts",
)
PLACES = (
    "build",
    "dist",
    "target",
    "venv",
    "node_modules",
    "vendor",
    "__pycache__",
    ".git",
    ".cache",
    ".hidden",
    "env",
)


async def test_no_such_file_is_read_in_a_large_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need("bubblewrap", monkeypatch)
    chance = random.Random(7)
    with world(tmp_path) as there:
        directories = [there.workspace]
        for number in range(2_000):
            above = chance.choice(directories[-40:])
            directories.append(above / f"{chance.choice(PLACES)}{number if number % 3 else ''}")
            directories[-1].mkdir(exist_ok=True)
        secrets = {chance.choice(directories) / chance.choice(NAMES) for _ in range(60)}
        for file in secrets:
            if not file.is_dir():
                file.write_text(SECRET)
        for name in NONE:
            (directories[-1] / name).write_text("an example")
        done = await there.run(["bash", "-c", "find . -type f -print0 | xargs -0 cat"], there.sandbox())
        assert there.harm(done) == []
        assert done.stdout.count(b"an example") == len(NONE)


def test_they_are_found_at_any_depth_and_in_any_directory(tmp_path: Path) -> None:
    deep = tmp_path
    for number in range(30):
        deep = deep / PLACES[number % len(PLACES)]
    deep.mkdir(parents=True)
    files = [directory / name for directory in (tmp_path, deep, *deep.parents[:5]) for name in NAMES]
    for file in files:
        file.touch()
    (deep / ".env.d").mkdir()
    (tmp_path / "linked.env").symlink_to(deep / ".env")
    assert set(env_files([str(tmp_path)])) == set(map(str, files))


def test_a_directory_of_such_a_name_is_none(tmp_path: Path) -> None:
    (tmp_path / ".env" / "bin").mkdir(parents=True)
    (tmp_path / ".env" / "bin" / "python").touch()
    (tmp_path / ".env" / ".env").touch()
    assert env_files([str(tmp_path)]) == (str(tmp_path / ".env" / ".env"),)
