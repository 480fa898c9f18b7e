"""The file of a memory: shared by tasks and processes, whole whatever happens."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
from pathlib import Path

import pytest
import trio
from support.messages import says
from support.starter import forked_code
from support.waiting import until

from callboard.actors.engine.workflow.memory.notebook import Note, Notebook
from callboard.protocol.errors import ConfigError

WRITER = """
import sys, trio
from pathlib import Path
from callboard.actors.engine.workflow.memory.notebook import Note, Notebook

async def main():
    book = Notebook(Path(sys.argv[1]), most=100_000, name="m")
    print("here", flush=True)
    sys.stdin.readline()
    for i in range(int(sys.argv[3])):
        await book.add(Note(text=f"{sys.argv[2]}-{i}"))
    book.close()

trio.run(main)
"""


async def texts(book: Notebook) -> list[str]:
    return [note.text for note in (await book.all()).values()]


async def test_the_latest_come_in_the_order_in_which_they_were_written() -> None:
    book = Notebook(None, most=1000, name="m")
    for i in range(5):
        await book.add(Note(text=str(i)))
    assert [note.text for note in await book.latest(3)] == ["2", "3", "4"]
    assert await texts(book) == ["0", "1", "2", "3", "4"]
    book.close()
    assert await texts(book) == []


async def test_the_oldest_go_and_a_text_of_the_same_digest_stays_one() -> None:
    book = Notebook(None, most=3, name="m")
    for text in ("a", "b", "b", "c", "d"):
        await book.add(Note(text=text, digest=text))
    assert await texts(book) == ["b", "c", "d"]


async def test_what_was_written_is_there_in_the_next_run(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "m.memory"
    book = Notebook(path, most=10, name="m")
    await book.add(Note(text="kept", digest="1", model="x", vector=b"1234"))
    book.close()
    assert path.stat().st_mode & 0o777 == 0o600
    book = Notebook(path, most=10, name="m")
    ((number, note),) = (await book.all()).items()
    assert note == Note(text="kept", digest="1", model="x", vector=b"1234")
    await book.set_vectors("y", {number: b"5678"})
    assert (await book.latest(1))[0] == Note(text="kept", digest="1", model="y", vector=b"5678")
    book.close()


async def test_a_hundred_writers_lose_nothing(tmp_path: Path) -> None:
    book = Notebook(tmp_path / "m", most=1000, name="m")
    async with trio.open_nursery() as nursery:
        for i in range(100):
            nursery.start_soon(book.add, Note(text=str(i)))
    assert sorted(await texts(book), key=int) == [str(i) for i in range(100)]
    book.close()


def started(path: Path, name: str, count: int) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [*forked_code(WRITER), str(path), name, str(count)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"here\n"
    return process


def go(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.write(b"\n")
    process.stdin.flush()


async def test_several_processes_write_at_once_and_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "m"
    processes = [started(path, name, 20) for name in "abc"]
    for process in processes:
        go(process)
    assert [process.communicate()[0] for process in processes] == [b"", b"", b""]
    book = Notebook(path, most=1000, name="m")
    written = await texts(book)
    for name in "abc":  # nothing is lost or doubled, and each writer's own are in order
        assert [text for text in written if text.startswith(name)] == [f"{name}-{i}" for i in range(20)]
    book.close()


async def test_a_writer_that_is_killed_leaves_a_file_that_works(tmp_path: Path) -> None:
    path = tmp_path / "m"
    process = started(path, "a", 100_000)
    go(process)
    book = Notebook(path, most=1_000_000, name="m")
    await until(lambda: path.exists() and path.stat().st_size > 20_000)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    await book.add(Note(text="after"))
    written = await texts(book)
    assert written[-1] == "after"
    assert written[:-1] == [f"a-{i}" for i in range(len(written) - 1)]
    book.close()


@pytest.mark.parametrize("what", ["text", "database", "directory"])
async def test_a_file_that_is_no_memory_is_told_and_left_alone(tmp_path: Path, what: str) -> None:
    path = tmp_path / "m"
    if what == "text":
        path.write_text('{"memories": []}' * 100)
    elif what == "database":
        connection = sqlite3.connect(path)
        connection.execute("CREATE TABLE mine (a)")
        connection.commit()
        connection.close()
    else:
        path.mkdir()
    before = path.read_bytes() if path.is_file() else b""
    book = Notebook(path, most=10, name="notes")
    with pytest.raises(ConfigError, match=says("engine.workflow.memory.notebook.Notebook._safely.2", _name="notes")):
        await book.add(Note(text="a"))
    assert (path.read_bytes() if path.is_file() else b"") == before
    book.close()
