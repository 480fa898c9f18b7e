"""Directories above protected files: a process that moves one leaves nothing to read or to change for the next process.

Random trees of directories, a protected file of random kind in each, and random moves; each is made in one process, and
looked at from the next one.
"""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

import pytest
import trio
from support.sandbox_surroundings import BACKENDS, SECRET, World, need, world

from callboard.actors.work.sandbox.bubblewrap import FEW
from callboard.supervisors import Root

WORDS = ("app", "conf", "lib", "data", "one", "two")

MOVES = (
    "mv {above} moved",
    "mkdir -p x && mv {above} x/",
    "mv {top} moved && mkdir -p {above} && touch {file}",
    "mv {top} moved && ln -s moved {top}",
    "cp -r {above} copied",
    "python3 -c \"import os; os.rename('{above}', 'renamed')\"",
    "mkdir -p other && python3 -c \"import ctypes; ctypes.CDLL(None).renameat2(-100, b'{top}', -100, b'other', 2)\"",
    "rm -rf {top}; mkdir -p {above}; echo mine > {file}",
    "tar c {top} | (mkdir -p out && cd out && tar x)",
    "ln {file} linked; ln -s {file} symbolic",
)


def random_paths(chance: random.Random, most: int, name: str) -> list[str]:
    """Return relative paths of files of one name, two or more directories deep, each below a top of its own."""
    found = []
    for number in range(most):
        parts = [f"{chance.choice(WORDS)}{number}", *chance.choices(WORDS, k=chance.randint(1, 3))]
        found.append("/".join((*parts, name)))
    return found


def moving(chance: random.Random, paths: list[str]) -> str:
    """Return a script that tries each path's move, and reads what it can."""
    lines = []
    for number, path in enumerate(paths):
        above = str(Path(path).parent)
        move = chance.choice(MOVES).format(file=path, above=above, top=path.split("/")[0])
        lines.append(f"mkdir -p w{number}; ( {move} ) 2>/dev/null")
    return "\n".join([*lines, READ_ALL])


READ_ALL = "find . -type f -print0 | xargs -0 cat 2>/dev/null; true"


async def looked_at(there: World, script: str, **rules: object) -> None:
    """Run a script in one process, then read everything in the next two."""
    sandbox = there.sandbox(**rules)
    try:
        for each in (script, READ_ALL, READ_ALL):
            done = await there.run(["bash", "-c", each], sandbox)
            assert there.harm(done) == []
    finally:
        sandbox.remove()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("seed", range(3))
async def test_a_hidden_file_stays_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str, seed: int
) -> None:
    need(backend, monkeypatch)
    chance = random.Random(seed)
    with world(tmp_path) as there:
        paths = random_paths(chance, 12, "key.pem")
        for path in paths:
            (there.workspace / path).parent.mkdir(parents=True)
            (there.workspace / path).write_text(SECRET)
        await looked_at(there, moving(chance, paths), hide=[str(there.workspace / path) for path in paths])


@pytest.mark.parametrize("most", [12, FEW + 12])
@pytest.mark.parametrize("seed", range(3))
async def test_a_file_of_variables_stays_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, most: int
) -> None:
    need("bubblewrap", monkeypatch)
    # A result that is used again for ever: only the look at what was found notices a move.
    monkeypatch.setattr("callboard.actors.work.sandbox.protected_paths.USED_FOR", 1e9)
    chance = random.Random(seed)
    with world(tmp_path) as there:
        paths = random_paths(chance, most, chance.choice((".env", "prod.env")))
        for path in paths:
            (there.workspace / path).parent.mkdir(parents=True)
            (there.workspace / path).write_text(SECRET)
        await looked_at(there, moving(chance, paths))


async def test_a_process_that_moves_directories_all_the_time_gains_nothing_by_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need("bubblewrap", monkeypatch)
    script = """
for round in $(seq 40); do
  for name in $(seq 10); do mv "d$name" "e$name" && mkdir "d$name" && touch "d$name/.env"; done
  for name in $(seq 10); do rm -r "d$name" && mv "e$name" "d$name"; done
done 2>/dev/null
true
"""
    with world(tmp_path) as there:
        for number in range(FEW + 10):
            (there.workspace / f"d{number}").mkdir()
            (there.workspace / f"d{number}" / ".env").write_text(SECRET)
        sandbox = there.sandbox()
        async with Root() as root, trio.open_nursery() as nursery:
            nursery.start_soon(there.run_below, root, ["bash", "-c", script], sandbox)
            for _ in range(8):
                done = await there.run_below(root, ["bash", "-c", READ_ALL], sandbox)
                assert there.harm(done) == []
            nursery.cancel_scope.cancel()
        sandbox.remove()


async def test_a_file_that_names_a_submodule_s_git_directory_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need("bubblewrap", monkeypatch)
    chance = random.Random(5)
    env = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null"}
    with world(tmp_path) as there:
        mark = tmp_path / "ran"
        part = tmp_path / "part"
        for directory in (part, there.workspace):
            directory.mkdir(exist_ok=True)
            _git(directory, env, "init", "-q")
            _git(directory, env, "commit", "-q", "--allow-empty", "-m", "x")
        paths = random_paths(chance, 4, "part")
        for path in paths:
            _git(there.workspace, env, "submodule", "add", "-q", str(part), path)
        _git(there.workspace, env, "commit", "-qm", "y")
        evil = there.workspace / "evil"
        lines = [f"git init -q {evil}", f"git -C {evil} config core.fsmonitor 'touch {mark}; false'"]
        for path in paths:
            above, top = str(Path(path).parent), path.split("/")[0]
            move = chance.choice(MOVES[:4]).format(file=path, above=above, top=top)
            lines += [f"( {move} ) 2>/dev/null", f"mkdir -p {path}; echo 'gitdir: {evil}/.git' > {path}/.git"]
        there.note_state()
        sandbox = there.sandbox()
        done = await there.run(["bash", "-c", "\n".join([*lines, "true"])], sandbox)
        sandbox.remove()
        assert there.harm(done) == []
        _git(there.workspace, env, "status")
        assert not mark.exists()


def _git(directory: Path, env: dict[str, str], *words: str) -> None:
    options = ["-c", "protocol.file.allow=always", "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", *options, *words], cwd=directory, env=env, check=True, capture_output=True)


async def test_a_program_in_a_kept_directory_of_a_home_that_is_the_workspace_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need("bubblewrap", monkeypatch)
    with world(tmp_path) as there:
        (there.home / ".local/bin").mkdir(parents=True)
        (there.home / ".local/bin/mine").write_text("#!/bin/sh\n")
        there.note_state()
        script = "cd && mv .local .old; mkdir -p .local/bin && echo evil > .local/bin/mine; true"
        done = await there.run(["bash", "-c", script], there.sandbox(here=there.home))
        assert there.harm(done) == []
        assert (there.home / ".local/bin/mine").read_text() == "#!/bin/sh\n"
