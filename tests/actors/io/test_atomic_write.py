"""Files that are replaced as a whole: readers never see half, failures leave what was there, nothing stays behind."""

from __future__ import annotations

import os
import socket
import stat
import threading
from pathlib import Path

import pytest

from callboard.actors.io.atomic_write import replacing, unfinished, write_whole


def test_a_file_holds_what_was_written_last_and_nothing_lies_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    for data in (b"one", b"", b"three" * 100_000):
        write_whole(file, data, durable=data == b"one")
        assert file.read_bytes() == data
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize(("private", "mode"), [(True, 0o600), (False, 0o640)])
def test_its_mode_is_its_owners_alone_or_what_the_umask_says(private: bool, mode: int, tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.touch(0o666)
    before = os.umask(0o027)
    try:
        write_whole(file, b"x", private=private)
    finally:
        os.umask(before)
    assert stat.S_IMODE(file.stat().st_mode) == mode


def test_a_block_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"before")

    def interrupted() -> None:
        with replacing(file) as part:
            part.write_bytes(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert file.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [file]


def test_where_the_name_is_a_directorys_it_fails_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    with pytest.raises(OSError, match="directory"):
        write_whole(tmp_path / "a", b"x")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_what_a_killed_process_of_the_same_id_has_left_is_written_over_not_followed(tmp_path: Path) -> None:
    file, other = tmp_path / "a", tmp_path / "other"
    other.write_bytes(b"not mine")
    (tmp_path / f"a.{os.getpid()}-{threading.get_native_id()}.part").symlink_to(other)
    assert [path.name for path in unfinished(file)] != []
    write_whole(file, b"x")
    assert (file.read_bytes(), other.read_bytes()) == (b"x", b"not mine")
    assert unfinished(file) == unfinished(tmp_path / "nowhere" / "a") == []


def test_threads_that_write_one_file_at_once_each_write_all_of_theirs(tmp_path: Path) -> None:
    file = tmp_path / "a"
    texts = [bytes([65 + i]) * 50_000 for i in range(8)]
    threads = [threading.Thread(target=write_whole, args=(file, text)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert file.read_bytes() in texts
    assert list(tmp_path.iterdir()) == [file]


def test_what_is_made_in_the_block_need_not_be_a_common_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # addresses of sockets are short
    with socket.socket(socket.AF_UNIX) as sock, replacing(tmp_path / "s") as part:
        sock.bind(part.name)
    assert (tmp_path / "s").is_socket()
