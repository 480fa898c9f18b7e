"""What is missing, broken, full, busy or of another kind is told clearly, with what to run; and a rebuild mends it."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import trio
from support.knowledge_library import Hashing, Library
from support.messages import says

from callboard.actors.work.knowledge.base.base import KnowledgeBase
from callboard.actors.work.knowledge.base.build import drop
from callboard.actors.work.knowledge.base.layout import BaseLayout
from callboard.actors.work.knowledge.base.model import FORMAT, BaseSettings, BuildProgress
from callboard.protocol.errors import KnowledgeBusy, KnowledgeError, KnowledgeMissing
from callboard.supervisors import Actor


async def test_where_nothing_was_built_one_is_told_to_build(library: Library, tmp_path: Path) -> None:
    with pytest.raises(
        KnowledgeMissing, match=says("work.knowledge.base.layout.BaseLayout.read_lock", directory="…nowhere.kb")
    ):
        await KnowledgeBase.open(tmp_path / "nowhere.kb")


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def _meta(change: Callable[[dict[str, object]], object]) -> Callable[[Path], None]:
    def apply(path: Path) -> None:
        meta = json.loads(path.read_text())
        change(meta)
        path.write_text(json.dumps(meta))

    return apply


BROKEN = {
    "meta.json cut": ("meta.json", _cut, "meta.json can't be read"),
    "meta.json gone": ("meta.json", Path.unlink, "meta.json can't be read"),
    "a later format": (
        "meta.json",
        _meta(lambda meta: meta.update(format=FORMAT + 1, settings=None)),
        f"its format is {FORMAT + 1}, and this version of Callboard reads format {FORMAT}",
    ),
    "vectors cut": ("vectors.npy", _cut, r"vectors\.npy should have \d+ bytes, and has \d+"),
    "catalogue gone": ("catalogue.sqlite", Path.unlink, r"catalogue\.sqlite should have \d+ bytes, and is missing"),
    "catalogue garbled": (
        "catalogue.sqlite",
        lambda path: path.write_bytes(b"x" * path.stat().st_size),
        "file is not a database",
    ),
    "words garbled": (
        "words/meta.json",
        lambda path: path.write_bytes(b"{" * path.stat().st_size),
        "Data corrupted",
    ),
    "other counts": ("meta.json", _meta(lambda meta: meta.update(chunks=7)), r"have \(2, 2\) chunks instead of 7"),
    "generation gone": ("", lambda path: path.rename(path.with_name("lost")), "names a build that does not exist"),
    "current garbled": (
        "../current",
        lambda path: path.write_text("gen-x\n"),
        "contains 'gen-x' instead of the name",
    ),
}


@pytest.mark.parametrize(("name", "damage", "told"), BROKEN.values(), ids=list(BROKEN))
@pytest.mark.sample(4)
async def test_broken_files_are_told_and_a_rebuild_mends_them(
    library: Library, name: str, damage: Callable[[Path], object], told: str
) -> None:
    library.holds(a="one", b="two")
    await library.build()
    damage(library.directory / "gen-000001" / name)
    with pytest.raises(KnowledgeError, match=f"{told}.*; run: callboard kb rebuild {library.directory}"):
        await KnowledgeBase.open(library.directory)
    assert (await library.build(rebuild=True)).embedded == 2
    assert (await library.find("two", top_k=1)).sources == ("b.md",)


@pytest.mark.parametrize("name", ["meta.json", "catalogue.sqlite"])
async def test_a_build_upon_broken_files_says_so(library: Library, name: str) -> None:
    library.holds(a="one")
    await library.build()
    _cut(library.directory / "gen-000001" / name)
    library.holds(a="two")
    with pytest.raises(KnowledgeError, match=says("work.knowledge.base.layout.BaseLayout.broken")):
        await library.build()


@pytest.mark.parametrize("name", ["plan.json", "catalogue.sqlite"])
async def test_an_unfinished_generation_that_is_broken_is_begun_again(library: Library, name: str) -> None:
    library.holds(a="one\n\ntwo")
    await _leave_unfinished(library)
    (library.directory / "building" / name).write_bytes(b"x" * 5000)
    assert (await library.build()).embedded == 2
    assert (await library.find("two", top_k=1)).chunks


async def _leave_unfinished(library: Library) -> None:
    """Build, and be cancelled before the first vector comes."""
    with trio.CancelScope() as scope:

        def stop(progress: BuildProgress) -> None:
            if progress.phase == "embed":
                scope.cancel()

        await library.build(on_progress=stop)
    assert scope.cancelled_caught


async def test_another_model_language_or_dimension_is_refused(library: Library) -> None:
    library.holds(a="one")
    await library.build()
    for embedder, settings, told in (
        (Hashing("newer"), None, "built with model 'hash', which differs from 'newer' now"),
        (Hashing(), BaseSettings(language="de"), "built with language 'en', which differs from 'de' now"),
        (Hashing(size=32), None, "built with dimension 64, which differs from 32 now"),
    ):
        with pytest.raises(KnowledgeError, match=f"{told}; .*run: callboard kb rebuild"):
            await library.build(embedder=embedder, settings=settings)
    with pytest.raises(
        KnowledgeError, match=says("work.knowledge.base.bm25_index.check_language", language="tlh", known="ar, …")
    ):
        await library.build(settings=BaseSettings(language="tlh"), rebuild=True)
    assert (await library.find("one")).chunks


async def test_vectors_that_are_none_are_refused(library: Library) -> None:
    library.holds(a="one", b="two")
    await library.build(embedder=Shaped(64, 1.0))
    library.holds(a="three", b="two")
    for size, fill, told in (
        (32, 1.0, says("work.knowledge.base.model.halves.2", shape=32, dimension=64)),
        (0, 1.0, says("work.knowledge.base.model.halves", shape="(1, 0)", rows=1)),
        (64, float("nan"), "NaN"),
    ):
        with pytest.raises(KnowledgeError, match=told):
            await library.build(embedder=Shaped(size, fill))
    assert (await library.build(embedder=Shaped(64, 1.0))).embedded == 1


class Shaped(Hashing):
    """Gives arrays of any shape, and doesn't say so before."""

    def __init__(self, size: int, fill: float) -> None:
        super().__init__(size=size)
        self.dimension = None
        self.fill = fill

    async def embed(self, me: Actor, texts: Sequence[str], *, query: bool = False) -> Any:
        await trio.lowlevel.checkpoint()
        return np.full((len(texts), self.size), self.fill, dtype=np.float32)


async def test_a_text_without_words_does_no_harm(library: Library) -> None:
    library.holds(a="...", b="two")
    await library.build()
    assert (await library.find("two", top_k=1)).sources == ("b.md",)
    library.holds(a="...", b="two", c="three")
    assert (await library.build()).chunks == 3


# --- one builder --------------------------------------------------------------------------------------------------


async def test_a_second_builder_is_told_of_the_first(library: Library) -> None:
    handle = BaseLayout(library.directory).build_lock()
    with pytest.raises(KnowledgeBusy, match=rf"is being built by process {os.getpid()} since \d\d:\d\d:\d\d"):
        await library.build()
    os.close(handle)
    await library.build()


async def test_a_second_builder_waits_if_it_is_told_to(library: Library) -> None:
    library.holds(a="one")
    library.embedder.pause = 0.05
    reports = []

    async def one() -> None:
        reports.append(await library.build(wait=10))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(one)
        nursery.start_soon(one)
    assert sorted((report.added, report.unchanged) for report in reports) == [(0, 1), (1, 0)]


async def test_the_lock_of_a_builder_that_was_killed_is_taken_over(library: Library) -> None:
    script = (
        "import sys, time; from pathlib import Path;"
        " from callboard.actors.work.knowledge.base.layout import BaseLayout;"
        " BaseLayout(Path(sys.argv[1])).build_lock(); print('locked', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", script, library.directory], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"locked\n"
        with pytest.raises(KnowledgeBusy, match=f"process {process.pid}"):
            await library.build()
        process.send_signal(signal.SIGKILL)
    library.holds(a="one")
    assert (await library.build()).added == 1


async def test_a_directory_of_something_else_is_left_alone(library: Library) -> None:
    precious = library.directory / "building" / "precious"
    precious.parent.mkdir(parents=True)
    precious.touch()
    for work in (library.build, partial(library.build, rebuild=True), partial(drop, library.directory)):
        with pytest.raises(KnowledgeError, match=says("work.knowledge.base.layout.BaseLayout.build_lock")):
            await work()
    assert [path for path in library.directory.rglob("*") if path.is_file()] == [precious]


# --- the disk -----------------------------------------------------------------------------------------------------


async def test_a_full_disk_is_told_and_the_build_goes_on_when_there_is_room(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    library.holds(**{str(number): f"text {number}" for number in range(8)})

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("callboard.actors.work.knowledge.base.build.sync_all", full)
        with pytest.raises(KnowledgeError, match=says("work.knowledge.base.layout.knowledge_errors")):
            await library.build()
    assert len(library.embedder.texts) == 8
    report = await library.build()
    assert (report.embedded, report.chunks) == (0, 8)
    assert (await library.find("text 3", top_k=1)).sources == ("3.md",)


async def test_a_file_beyond_the_limit_of_the_process_is_a_full_disk(library: Library) -> None:
    script = (
        "import resource, signal, sys, trio, support.knowledge_library as s; from pathlib import Path;"
        " from callboard.supervisors import Root; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "async def main():\n"
        "    async with Root() as root:\n"
        "        library = s.Library(root, Path(sys.argv[1]))\n"
        "        library.holds(a='\\n\\n'.join(f'text {n} ' + 'word ' * 200 for n in range(100)))\n"
        "        resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))\n"
        "        try:\n"
        "            await library.build()\n"
        "        except Exception as error:\n"
        "            print(type(error).__name__, error)\n"
        "trio.run(main)\n"
    )
    argv = [sys.executable, "-c", script, str(library.directory)]
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[4])}
    done = await trio.run_process(argv, capture_stdout=True, env=environ)
    assert done.stdout.startswith(b"KnowledgeError no space is left on the disk of ")


@pytest.mark.parametrize(
    ("free", "told"),
    [
        (0, says("work.knowledge.base.layout.knowledge_errors")),
        (10**9, says("work.knowledge.base.layout.BaseLayout.broken")),
    ],
)
async def test_an_engine_that_does_not_say_why_it_could_not_write(
    library: Library, monkeypatch: pytest.MonkeyPatch, free: int, told: str
) -> None:
    def failed(*_: object) -> None:
        raise RuntimeError("Failed to serialize into stream")  # what usearch says on a full disk

    library.holds(a="one")
    monkeypatch.setattr("callboard.actors.work.knowledge.base.build.sync_all", failed)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    with pytest.raises(KnowledgeError, match=told):
        await library.build()


async def test_a_directory_that_may_not_be_written_is_told(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(_: BaseLayout) -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), "builder.lock")  # root may write anywhere

    monkeypatch.setattr(BaseLayout, "build_lock", forbidden)
    with pytest.raises(
        KnowledgeError,
        match=says("work.knowledge.base.layout.knowledge_errors.2", error="…Permission denied: 'builder.lock'"),
    ):
        await library.build()


# --- swaps --------------------------------------------------------------------------------------------------------


async def test_a_generation_that_was_complete_but_not_swapped_in_is_swapped_in(library: Library) -> None:
    library.holds(a="one")
    await library.build()
    library.holds(a="two")
    await library.build()
    (library.directory / "current").write_text("gen-000001\n")  # as if killed between the last two steps
    (library.directory / "work.sqlite").touch()
    report = await library.build()
    assert (report.generation, report.embedded, report.unchanged) == (2, 0, 1)
    assert not (library.directory / "work.sqlite").exists()


async def test_a_rebuild_that_was_interrupted_is_gone_on_with(library: Library) -> None:
    library.holds(**{str(number): f"text {number}" for number in range(8)})
    await library.build()
    library.embedder = Hashing("other")
    with trio.CancelScope() as scope:

        def stop(progress: BuildProgress) -> None:
            if progress.phase == "embed" and progress.done == 4:
                scope.cancel()

        await library.build(rebuild=True, on_progress=stop)
    report = await library.build()  # no need to say it again
    assert (report.added, report.embedded, report.generation) == (8, 4, 2)
