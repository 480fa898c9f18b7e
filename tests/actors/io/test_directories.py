"""Directories of state and cache are for their owner alone, whatever the umask says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from callboard.actors.io.directories import private_directory


@pytest.mark.parametrize("mask", [0, 0o022, 0o077])
def test_it_and_those_above_it_that_are_missing_are_for_their_owner(tmp_path: Path, mask: int) -> None:
    (tmp_path / "there").mkdir(mode=0o755)
    before = os.umask(mask)
    try:
        private_directory(tmp_path / "there" / "a" / "b")
        private_directory(tmp_path / "there")
    finally:
        os.umask(before)
    assert [(tmp_path / "there" / name).stat().st_mode & 0o777 for name in ("a", "a/b", ".")] == [0o700, 0o700, 0o755]


def test_a_file_in_its_place_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        private_directory(tmp_path / "file")
    with pytest.raises(NotADirectoryError):
        private_directory(tmp_path / "file" / "below")
