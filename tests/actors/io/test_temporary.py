"""Temporary files of a process: they go with it, and those of a killed process with the next command."""

from __future__ import annotations

import ast
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.waiting import PATIENCE

from callboard import actors
from callboard.actors.io import temporary

PACKAGE = Path(actors.__file__).parents[1]

OWNER = """
import os, sys
from callboard.actors.io import temporary
path = temporary.make_directory("big-")
(path / "data").write_bytes(b"x" * 1_000_000)
locked = path / "module" / "v1"
locked.mkdir(parents=True)
(locked / "code").write_text("x")
locked.chmod(0o555)
locked.parent.chmod(0o555)
temporary.make_file("output-")
temporary.make_directory("", bases=temporary.run_bases(), name="run-1")
if "fork" in sys.argv:
    if os.fork() == 0:
        os.write(1, b"%d\\n" % os.getpid())  # by the child, which has then closed the lock; whole lines: two write
        sys.stdin.read()
        os._exit(0)
os.write(1, os.fsencode(path) + b"\\n")
sys.stdin.read()
"""


@pytest.fixture
def tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory for temporary files, and a home."""
    for name in ("tmp", "home"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    return tmp_path / "tmp"


@contextmanager
def owner(*flags: str) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """A process with temporary files, and the lines that it prints when they are there."""
    argv = [sys.executable, "-c", OWNER, *flags]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process, [process.stdout.readline().strip() for _ in range(2 if flags else 1)]
    finally:
        process.kill()
        process.communicate()


def files(directory: Path) -> list[Path]:
    """What is below a directory, without the bases."""
    bases = {base.path for base in temporary.run_bases()}
    return [path for path in directory.rglob("*") if path not in bases and path.parents[0] != directory]


def kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait(PATIENCE)


def test_files_and_directories_are_private_and_removed_at_the_end_of_the_block(tmp: Path) -> None:
    with temporary.file("output-", ".json") as path, temporary.directory("parts-") as other:
        assert path.is_relative_to(tmp)
        assert path.parent == other.parent
        modes = [stat.S_IMODE(each.stat().st_mode) for each in (path, other, path.parent, path.parent.parent)]
        assert modes == [0o600, 0o700, 0o700, 0o700]
    assert list((tmp / f"callboard-{os.geteuid()}").iterdir()) == []


def test_a_killed_process_s_files_are_removed_and_a_live_one_s_stay(tmp: Path) -> None:
    with owner() as (killed, lines), owner() as (_, (alive,)):
        kill(killed)
        assert Path(lines[0], "data").exists()
        temporary.sweep()
        assert not Path(lines[0]).parent.exists()
        assert Path(alive, "data").exists()
        (run,) = (tmp.parent / "home" / "callboard" / "tmp").iterdir()
        assert [each.name for each in run.iterdir()] == ["run-1"]


def test_a_normal_end_removes_everything(tmp: Path) -> None:
    with owner() as (process, (path,)):
        process.communicate("", PATIENCE)
        assert process.returncode == 0
        assert not Path(path).parent.exists()
    assert list((tmp.parent / "home" / "callboard" / "tmp").iterdir()) == []


def test_a_fork_does_not_keep_the_files_of_a_killed_parent(tmp: Path) -> None:
    with owner("fork") as (process, lines):
        (child,) = (int(line) for line in lines if line.isdecimal())
        (path,) = (Path(line) for line in lines if not line.isdecimal())
        try:
            kill(process)
            os.kill(child, 0)  # it lives
            temporary.sweep()
            assert not path.exists()
        finally:
            os.kill(child, signal.SIGKILL)


def test_several_processes_may_sweep_at_once_while_others_begin(tmp: Path) -> None:
    for _ in range(10):
        with owner() as (process, _):
            kill(process)
    sweeps = "from callboard.actors.io import temporary\nfor _ in range(100): temporary.sweep()"
    begins = (
        "from callboard.actors.io import temporary\n"
        "for n in range(100):\n"
        "    with temporary.file('x-') as path: path.write_text(str(n)); assert path.read_text() == str(n)"
    )
    programs = [subprocess.Popen([sys.executable, "-c", each]) for each in (sweeps, begins) * 3]
    assert [program.wait(PATIENCE) for program in programs] == [0] * 6
    temporary.sweep()
    assert files(tmp) == []


def test_a_directory_that_something_has_removed_is_made_again(tmp: Path) -> None:
    path = temporary.make_file("a-")
    path.unlink()
    path.parent.rmdir()
    with temporary.file("b-") as other:
        assert other.exists()
    temporary.remove(path)


@pytest.mark.parametrize("kind", ["symlink", "writable", "file"])
def test_a_base_that_another_user_may_have_made_is_not_used(
    tmp: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    target, base = tmp.parent / "target", tmp / f"callboard-{os.geteuid()}"
    theirs = target / "1-0123456789ab"
    theirs.mkdir(parents=True)
    if kind == "symlink":
        base.symlink_to(target)
    elif kind == "writable":
        base.mkdir()
        base.chmod(0o777)
        theirs = base / theirs.name
        theirs.mkdir()
    else:
        base.touch()
    temporary.sweep()
    assert theirs.exists()
    with temporary.file("output-") as path:
        assert not path.is_relative_to(tmp)
        assert not path.is_relative_to(target)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another user")
def test_a_base_of_another_user_is_not_used(tmp: Path) -> None:
    base = tmp / "callboard-0"
    base.mkdir()
    os.chown(base, 4321, 4321)
    with temporary.file("output-") as path:
        assert not path.is_relative_to(tmp)


def test_links_in_what_is_removed_are_not_followed(tmp: Path) -> None:
    precious = tmp.parent / "precious"
    precious.mkdir()
    (precious / "file").write_text("x")
    with owner() as (process, (path,)):
        (Path(path) / "link").symlink_to(precious)
        Path(path).parent.parent.joinpath("2-0123456789ab").symlink_to(precious)
        kill(process)
    temporary.sweep()
    assert not Path(path).exists()
    assert (precious / "file").exists()


def test_a_read_only_home_is_replaced_by_the_temporary_directory(tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp / "file"))  # no directory can be made in it, as on a read-only disk
    path = temporary.make_directory("", bases=temporary.run_bases(), name="run-1")
    assert path.is_relative_to(tmp / f"callboard-{os.geteuid()}")
    temporary.remove(path)


def test_a_directory_that_is_to_be_renamed_is_removed_if_its_owner_was_killed(tmp: Path) -> None:
    with temporary.locked_directory(tmp, ".new-") as new:
        (new / "file").touch()
        temporary.sweep_directory(tmp, ".new-")
        assert (new / "file").exists()
        new.rename(tmp / "done")
    assert [each.name for each in tmp.iterdir()] == ["done"]
    left = tmp / ".new-1-0123456789ab"
    left.mkdir()
    with temporary.locked_directory(tmp, ".new-"):
        assert not left.exists()
    assert [each.name for each in tmp.iterdir()] == ["done"]


EXCEPTIONS = {
    "actors/work/library/agents/coder/scripts/checks.py": "a script of its own process; the file has no name",
    "actors/work/sandbox/probes.py": "must not be where processes have a directory of their own in its place",
    "cli/commands/demo.py": "its repository stays after the demo, for the user to look at",
    "actors/engine/workflow/workers/devall/host.py": "a process without this package, in a directory of its parent's",
}
"""Modules that use `tempfile`, and why they may."""


def test_no_other_module_makes_temporary_files() -> None:
    found = set()
    for folder in ("actors", "cli", "supervisors", "protocol"):
        for file in (PACKAGE / folder).rglob("*.py"):
            text = file.read_bytes()
            for node in ast.walk(ast.parse(text)) if b"tempfile" in text else ():
                names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
                names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                if "tempfile" in names:
                    found.add(file.relative_to(PACKAGE).as_posix())
    assert found == set(EXCEPTIONS)
