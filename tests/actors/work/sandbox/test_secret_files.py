"""Files of variables in a workspace, which no process reads."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from support.sandbox_surroundings import BACKENDS, SECRET, need, world

from callboard.actors.work.sandbox.protected_paths import env_files

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
    assert {each.path for each in env_files([str(tmp_path)])} == set(map(str, files))


def test_a_directory_of_such_a_name_is_none(tmp_path: Path) -> None:
    (tmp_path / ".env" / "bin").mkdir(parents=True)
    (tmp_path / ".env" / "bin" / "python").touch()
    (tmp_path / ".env" / ".env").touch()
    assert [each.path for each in env_files([str(tmp_path)])] == [str(tmp_path / ".env" / ".env")]


PRIVATE = (".claude/.credentials.json", ".claude.json", ".config/gh/hosts.yml", ".cache/huggingface/token", ".s3cfg")
PRIVATE += (
    ".gradle/gradle.properties",
    ".cargo/credentials.toml",
    ".local/share/fish/fish_history",
    ".config/git/credentials",
)
READ = (".cargo/bin/tool", ".gitconfig", ".config/git/config", ".cache/uv/x", ".local/bin/mine", "notes/plain")


@pytest.mark.parametrize("backend", BACKENDS)
async def test_a_home_directory_hides_what_is_not_known_to_be_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    need(backend, monkeypatch)
    chance = random.Random(11)
    letters = "abcdefghijklmnopqrstuvwxyz"
    unknown = ["".join(chance.choices(letters, k=8)) for _ in range(30)]
    secrets = [
        *PRIVATE,
        *(f".{name}" for name in unknown[:10]),
        *(f".{name}/auth/{name}.json" for name in unknown[10:15]),
    ]
    for above in (".config", ".cache", ".local/share"):
        secrets += [f"{above}/{name}/{name}" for name in unknown[15:]]
    with world(tmp_path) as there:
        for name in secrets:
            (there.home / name).parent.mkdir(parents=True, exist_ok=True)
            (there.home / name).write_text(SECRET)
        for name in READ:
            (there.home / name).parent.mkdir(parents=True, exist_ok=True)
            (there.home / name).write_text(f"read {name}\n")
        there.note_state()
        done = await there.run(["bash", "-c", "find $HOME -type f -print0 | xargs -0 cat"], there.sandbox())
        assert there.harm(done) == []
        assert sorted(done.stdout.decode().splitlines()) == sorted(f"read {name}" for name in READ)


@pytest.mark.parametrize("backend", BACKENDS)
async def test_a_home_directory_that_is_the_workspace_hides_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    need(backend, monkeypatch)
    with world(tmp_path) as there:
        for name in PRIVATE:
            (there.home / name).parent.mkdir(parents=True, exist_ok=True)
            (there.home / name).write_text(SECRET)
        there.note_state()
        done = await there.run(
            ["bash", "-c", "find $HOME -type f -print0 | xargs -0 cat"], there.sandbox(here=there.home)
        )
        assert there.harm(done) == []


async def test_programs_in_the_hidden_part_of_a_home_directory_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need("bubblewrap", monkeypatch)
    with world(tmp_path) as there:
        tool = there.home / ".unknown-tool/bin/mine"
        tool.parent.mkdir(parents=True)
        (tool.parent.parent / "lib").write_text("a library\n")
        tool.write_text('#!/bin/sh\ncat "$(dirname "$0")/../lib"\n')
        tool.chmod(0o755)
        code = there.home / ".servers/one/build/index.sh"
        code.parent.mkdir(parents=True)
        (there.home / ".servers/one/package.json").write_text("{}\n")
        code.write_text('cat "$(dirname "$0")/../package.json"\n')
        monkeypatch.setenv("PATH", f"{tool.parent}:/usr/bin:/bin")
        there.note_state()
        assert (await there.run(["mine"], there.sandbox())).stdout == b"a library\n"
        assert (await there.run(["sh", str(code)], there.sandbox())).stdout == b"{}\n"


@pytest.mark.parametrize("backend", BACKENDS)
async def test_credentials_beside_a_program_on_the_path_are_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    need(backend, monkeypatch)
    chance = random.Random(12)
    programs = [".cargo", ".docker", *(f".{chance.randbytes(4).hex()}" for _ in range(5)), ".config/made-up"]
    with world(tmp_path) as there:
        for program in programs:
            for name in ("credentials.toml", "config.json", f"{chance.randbytes(4).hex()}.yml", "keystores/key"):
                (there.home / program / name).parent.mkdir(parents=True, exist_ok=True)
                (there.home / program / name).write_text(SECRET)
            for name in ("bin/tool", "lib/code"):
                (there.home / program / name).parent.mkdir(parents=True, exist_ok=True)
                (there.home / program / name).write_text("read\n")
        path = ":".join(f"{there.home}/{program}/bin" for program in programs)
        monkeypatch.setenv("PATH", f"{path}:/usr/bin:/bin")
        there.note_state()
        done = await there.run(["bash", "-c", "find $HOME -type f -print0 | xargs -0 cat"], there.sandbox())
        assert there.harm(done) == []
        assert done.stdout.decode().splitlines() == ["read"] * 2 * len(programs)
