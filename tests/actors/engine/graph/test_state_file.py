"""The file that carries a large state: whatever happens, it does not stay."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from callboard.actors.engine.graph.nodes.script import PREFIX, SETTLED, remove_leftovers, state_file
from callboard.protocol.errors import NodeFailed

KILLED = """
import os, signal, sys, tempfile
from callboard.actors.engine.graph.nodes.script import state_file
tempfile.tempdir = sys.argv[1]
with state_file(b"a secret"):
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def grow_old(path: Path) -> None:
    before = time.time() - 2 * SETTLED
    os.utime(path, (before, before))


def test_it_is_for_us_alone_and_gone_at_the_end_of_the_block(tmp: Path) -> None:
    with state_file(b"x" * 100_000) as name:
        path = Path(name)
        assert path.parent == tmp
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.read_bytes() == b"x" * 100_000
    assert list(tmp.iterdir()) == []


def test_one_whose_owner_was_killed_is_removed_by_the_next(tmp: Path) -> None:
    subprocess.run([sys.executable, "-c", KILLED, str(tmp)], check=False)
    (left,) = tmp.iterdir()
    remove_leftovers(str(tmp))
    assert left.exists(), "somebody may just be about to lock it"
    grow_old(left)
    remove_leftovers(str(tmp))
    assert not left.exists()


def test_one_that_is_in_use_stays_however_old(tmp: Path) -> None:
    with state_file(b"x") as name:
        grow_old(Path(name))
        remove_leftovers(str(tmp))
        assert Path(name).exists()


def test_nothing_but_such_files_is_removed(tmp: Path) -> None:
    (tmp / "precious").write_text("x")
    link, pipe, folder = (tmp / f"{PREFIX}{kind}.json" for kind in ("link", "pipe", "folder"))
    link.symlink_to(tmp / "precious")
    os.mkfifo(pipe)
    folder.mkdir()
    others = [tmp / "precious", pipe, folder]
    for path in others:
        grow_old(path)
    remove_leftovers(str(tmp))
    assert sorted(tmp.iterdir()) == sorted([*others, link])


def test_a_directory_that_can_t_be_written_to_is_a_failure_of_the_node(
    tmp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp / "gone"))
    told = pytest.raises(NodeFailed, match="the state could not be written to a temporary file: No such file")
    with told, state_file(b"x"):
        pass
