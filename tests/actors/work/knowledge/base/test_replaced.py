"""A base that is removed, made anew, or rebuilt from nothing, with others looking; and what all of it leaves open."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from pathlib import Path

import pytest
from support.knowledge_library import Hashing, Library
from support.messages import says

from callboard.actors.work.knowledge.base.base import KnowledgeBase
from callboard.actors.work.knowledge.base.build import drop
from callboard.actors.work.knowledge.base.catalogue import UnreadablePaths
from callboard.actors.work.knowledge.base.layout import BaseLayout
from callboard.protocol.errors import KnowledgeBusy, KnowledgeError, KnowledgeMissing
from callboard.protocol.knowledge import Unreadable


async def test_a_base_made_anew_is_seen_though_its_number_is_the_same(library: Library) -> None:
    library.holds(a="apple")
    await library.build()
    base = await KnowledgeBase.open(library.directory)
    shutil.rmtree(library.directory)
    assert (await base.retrieve("apple", None)).sources == ("a.md",)
    with pytest.raises(KnowledgeMissing):
        await base.refresh()
    library.holds(a="banana")
    assert (await library.build()).generation == base.meta.generation == 1
    assert await base.refresh()
    assert (await base.retrieve("banana", None)).sources == ("a.md",)
    assert not await base.refresh()
    base.close()


async def test_a_removal_that_was_killed_leaves_nothing_that_counts(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    library.holds(a="apple")
    await library.build()

    def killed(path: Path) -> None:
        next(path.glob("catalogue*")).unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            BaseLayout(library.directory).drop()
    assert BaseLayout(library.directory).number() == 0
    report = await library.build()
    assert (report.added, report.embedded, report.generation) == (1, 1, 1)
    await drop(library.directory)
    assert not library.directory.exists()


async def test_a_rebuild_that_can_read_nothing_leaves_the_base_as_it_was(library: Library) -> None:
    library.holds(a="apple")
    await library.build()
    there = library.sources
    library.sources = [Unreadable(source="https://example.com/a", reason="no route")]
    with pytest.raises(
        KnowledgeError,
        match=says("work.knowledge.base.build._Build.read", source="https://example.com/a", reason="no route"),
    ):
        await library.build(rebuild=True)
    assert (await library.find("apple")).sources == ("a.md",)
    library.sources = there
    assert (await library.build()).unchanged == 1
    library.holds()
    assert (await library.build(rebuild=True)).chunks == 0  # nothing is there, and nothing is wrong


async def test_garbage_in_small_files_is_no_other_error(library: Library) -> None:
    library.holds(a="apple")
    await library.build()
    layout = BaseLayout(library.directory)
    layout.unreadable.write_bytes(b'"\xff')
    assert layout.lost().told == ()
    layout.current.write_bytes(b"\xff\xfe")
    with pytest.raises(KnowledgeError, match=says("work.knowledge.base.layout.BaseLayout.broken")):
        layout.number()
    layout.current.write_text("gen-000001\n")
    (library.directory / "gen-000001" / "meta.json").write_bytes(b'{"format": 1, "model": "\xff"}')
    with pytest.raises(KnowledgeError, match=says("work.knowledge.base.layout.BaseLayout.broken")):
        layout.meta(1)


async def test_files_are_given_back(library: Library) -> None:
    async def once(number: int) -> None:
        library.holds(a=f"apple {number}", b="banana")
        await library.build()
        await base.refresh()
        await base.retrieve("apple", None)
        other = await KnowledgeBase.open(library.directory)
        await other.retrieve("banana", None)
        other.close()
        library.embedder = Hashing(size=32)
        with pytest.raises(KnowledgeError):
            await library.build()
        library.embedder = Hashing()

    library.holds(a="apple")
    await library.build()
    base = await KnowledgeBase.open(library.directory)
    await once(0)
    before = _open_files(library.directory)
    for number in range(1, 9):
        await once(number)
    assert len(_open_files(library.directory)) == len(before)
    assert _generations_in_use(library.directory) == {
        BaseLayout(library.directory).generation(base.meta.generation).name
    }
    base.close()
    assert _generations_in_use(library.directory) == set()


def _generations_in_use(directory: Path) -> set[str]:
    """Those of which this process has a file open, or mapped into memory."""
    names = [*_open_files(directory), *Path("/proc/self/maps").read_text().splitlines()]
    return {name.partition(f"{directory}/")[2].partition("/")[0] for name in names if f"{directory}/" in name}


def _open_files(directory: Path) -> list[str]:
    """Return the files of this directory that the process has open; others belong to threads and earlier tests."""
    names = [os.fspath(handle.readlink()) for handle in Path("/proc/self/fd").iterdir() if handle.is_symlink()]
    return [name for name in names if f"{directory}/" in name]


def test_what_is_below_something_unreadable_is_kept() -> None:
    kept = UnreadablePaths(
        [Unreadable(source=name, reason="") for name in ("docs/**", "a.md", "https://example.com/x/**")]
    )
    for name in ("docs/a", "docs/b/c", "docs", "a.md", "a.md/x", "https://example.com/x/y"):
        assert kept.has(name)
    for name in ("docs2", "do", "b.md", "https://example.com/xy", "x/docs/a"):
        assert not kept.has(name)


async def test_a_lock_that_could_not_be_signed_is_given_back(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    library.holds(a="apple")
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(KnowledgeError, match=says("work.knowledge.base.layout.knowledge_errors")):
            await library.build()
    assert (await library.build()).added == 1


async def test_a_lock_that_was_removed_before_it_was_had_is_none(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout, flock = BaseLayout(library.directory), fcntl.flock
    removals = [lambda: layout.lock.unlink(), lambda: shutil.rmtree(layout.directory)]

    def late(handle: int, how: int) -> None:
        if removals:
            removals.pop()()
        flock(handle, how)

    monkeypatch.setattr(fcntl, "flock", late)
    handle = layout.build_lock()
    with pytest.raises(KnowledgeBusy):
        layout.build_lock()
    os.close(handle)


async def test_what_a_killed_writer_has_left_goes_with_the_base(library: Library) -> None:
    library.holds(a="apple")
    await library.build()
    for name in ("current", "recipe.json", "unreadable.json"):
        (library.directory / f"{name}.4711-4711.part").touch()
    await drop(library.directory)
    assert not library.directory.exists()


async def test_too_many_open_files_are_no_reason_to_rebuild(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    def many(*_: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    library.holds(a="apple")
    await library.build()
    monkeypatch.setattr(BaseLayout, "read_lock", many)
    with pytest.raises(
        KnowledgeError, match=says("work.knowledge.base.layout.knowledge_errors.3", error="…Too many open files")
    ) as raised:
        await KnowledgeBase.open(library.directory)
    assert "rebuild" not in str(raised.value)
