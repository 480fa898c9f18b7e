"""Packages of servers that entries start with `npx` and `uvx`: installed once, read-only for every server.

Problem: a runner stores downloads in a cache, and the server that it then becomes can write there. It could change the
program that another server, or a run in another directory, starts tomorrow. A separate cache per server prevents that,
but downloads the same package once per server.

So the two steps of a runner are two processes here. The first installs the package, in a sandbox in which only the
package's new directory is writable. The second is the server, which can only read that directory.

    ~/.cache/callboard/packages/DIGEST/current         folder in use and its time; written by Callboard alone
    ~/.cache/callboard/packages/DIGEST/FOLDER/         one installation; a newer one gets another folder
    ~/.cache/callboard/packages/DIGEST/download/       cache of the package manager, until an installation succeeds

This applies only to command lines that this module understands, and only to packages from a registry. For all others
(git repositories, directories, other options, other runners) the runner itself is started, with a cache of its own.

An install script is untrusted. It can leave links in its folder to a file of the user, which the sandbox would show to
the server as its program. So the program must be inside the folder after all links are resolved.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec
import trio
from msgspec.structs import replace

from .....protocol.decoding import decode_json
from .....protocol.errors import McpUnsent, ProcessError, TimedOut
from .....protocol.mcp.config import Server, entry_of
from .....supervisors import Actor
from .....supervisors.process import run_process
from ....io.atomic_write import write_whole
from ....io.directories import cache_dir, private_directory, sweep

if TYPE_CHECKING:
    from ...sandbox.policy import SandboxPlace

RENEWED_AFTER = 24 * 3600.0
"""Seconds after which a package without an exact version is looked up again."""

LEFT_FOR = 30 * 24 * 3600.0
"""Seconds after which an unused package is removed."""

REPLACED_LEFT_FOR = 24 * 3600.0
"""Seconds for which a replaced installation remains, since servers may be running from it."""

TAKES_AT_MOST = 240.0
"""Seconds for an installation; `start_timeout_seconds` if that is longer."""

_NPM = re.compile(
    r"(?P<name>(?:@[a-z0-9~-][\w.~-]*/)?[a-z0-9~-][\w.~-]*)(?:@(?P<version>[\w.^~<>=*|+ -]+))?", re.IGNORECASE
)
_PYPI = re.compile(
    r"(?P<name>[a-z0-9][\w.-]*)(?:\[[\w,. -]+\])?(?P<version>\s*(?:===?|>=|<=|~=|!=|<|>)[^;@/]+)?", re.IGNORECASE
)
_EXACT = re.compile(r"v?\d+\.\d+\.\d+[\w.+-]*")
_INDEX = re.compile(
    r"npm_config_.*registry.*|(UV|PIP)_.*(INDEX|FIND_LINKS).*|.*_proxy|(SSL|NODE|UV|REQUESTS)_.*(CERT|CA_BUNDLE).*",
    re.IGNORECASE,
)
"""Variables with the source of packages; the installation gets those that the entry sets."""

_FILES = (".tgz", ".tar", ".tar.gz")

_FOLDER = re.compile(r"[0-9a-f]{16}")


class Package(msgspec.Struct, frozen=True, kw_only=True):
    """Package that a runner's command line asks for.

    Attributes:
        manager: program that installs it.
        specs: package specifiers in the manager's syntax; the server's own comes first.
        name: name of the server's own package.
        program: program to start; "" for the one in the package's manifest.
        args: arguments of the server.
        options: options of the manager, such as another index.
    """

    manager: Literal["npm", "uv"]
    specs: tuple[str, ...]
    name: str
    program: str = ""
    args: tuple[str, ...] = ()
    options: tuple[str, ...] = ()

    @property
    def is_pinned(self) -> bool:
        """True if each specifier names one exact version, so that the package need not be looked up again."""
        if self.manager == "npm":
            matches = map(_NPM.fullmatch, self.specs)
            return all(match is not None and _EXACT.fullmatch(match["version"] or "") for match in matches)
        return all("==" in spec and "*" not in spec and "," not in spec for spec in self.specs)


class Current(msgspec.Struct, frozen=True):
    """Installation of a package that is in use, and the time when it was made."""

    folder: str
    at: float


def package_of(command: str, args: tuple[str, ...]) -> Package | None:
    """Return the package of a runner's command line; None for an unknown form, or a package of no registry."""
    runner = os.path.basename(command)  # noqa: PTH119 - a text, not a path of this machine
    if runner == "npx":
        return _of_npx(args)
    if runner == "uvx":
        return _of_uvx(args)
    return _of_uvx(args[2:]) if runner == "uv" and args[:2] == ("tool", "run") else None


def _of_npx(args: tuple[str, ...]) -> Package | None:
    parted = _parted(args, ("-y", "--yes", "-q", "--quiet"), {"-p": "package", "--package": "package"})
    if parted is None:
        return None
    given, rest = parted
    specs = tuple(given.get("package", rest[:1]))
    first = _NPM.fullmatch(specs[0])
    # `.tgz` and the like name a local archive, not a package of a registry.
    if first is None or not all(_NPM.fullmatch(spec) and not spec.endswith(_FILES) for spec in specs):
        return None
    program = rest[0] if "package" in given else ""
    return Package(manager="npm", specs=specs, name=first["name"], program=program, args=rest[1:])


_UV_OPTIONS = {
    "--from": "from",
    "--with": "with",
    "-w": "with",
    "-p": "--python",
    "--python": "--python",
    **{name: name for name in ("--index", "--default-index", "--index-url", "--extra-index-url", "--prerelease")},
}


def _of_uvx(args: tuple[str, ...]) -> Package | None:
    parted = _parted(args, ("-q", "--quiet"), _UV_OPTIONS)
    if parted is None:
        return None
    given, rest = parted
    program, _, version = rest[0].partition("@")
    if "from" not in given:
        own = program if version in ("", "latest") else f"{program}=={version}"
    elif version:
        return None
    else:
        own = given["from"][-1]
    extra = [spec for each in given.get("with", ()) for spec in each.split(",")]
    first = _PYPI.fullmatch(own)
    if first is None or not all(map(_PYPI.fullmatch, extra)):
        return None
    options = [
        text for name, values in given.items() if name.startswith("-") for value in values for text in (name, value)
    ]
    return Package(
        manager="uv", specs=(own, *extra), name=first["name"], program=program, args=rest[1:], options=tuple(options)
    )


def _parted(
    args: tuple[str, ...], flags: Iterable[str], valued: Mapping[str, str]
) -> tuple[dict[str, list[str]], tuple[str, ...]] | None:
    """Return the options with values, and the words from the first non-option on; None for an unknown form."""
    given: dict[str, list[str]] = {}
    at = 0
    while at < len(args) and args[at].startswith("-"):
        name, equals, value = args[at].partition("=")
        at += 1
        if args[at - 1] == "--":
            break
        if name in valued:
            if not equals:
                value = args[at] if at < len(args) else ""
                at += 1
            if not value or value.startswith("-"):
                return None
            given.setdefault(valued[name], []).append(value)
        elif args[at - 1] not in flags:
            return None
    return (given, args[at:]) if at < len(args) else None


# --- installing -------------------------------------------------------------------------------------------


async def installed(
    me: Actor, server: Server, environ: Mapping[str, str], place: SandboxPlace, log: Callable[[str], None]
) -> tuple[Server, tuple[str, ...]]:
    """Return the entry with a command that starts the installed package, and the directory to show in its sandbox.

    Installs the package if it is missing or outdated; if that fails, an older installation is used. Returns the
    unchanged server and no directory if the runner itself must start: its command line has no known form, the user
    determines the place of packages, the package manager is missing, or the package has no program of its name.

    Args:
        environ: environment of Callboard.
        place: sandbox rules of the server; the installation has the same ones with other writable paths.
        log: called with a line when a download starts, or when something else is started in place of the new package.

    Raises:
        McpUnsent: the package can't be installed, and no older installation exists; the text has the reason.
    """
    package = package_of(server.command, server.args)
    env = server.environment(environ)
    if package is None or _keeps_its_own(package, server, env, place):
        return server, ()
    manager = await trio.to_thread.run_sync(_manager, package, server.command, env.get("PATH", ""))
    if not manager:
        return server, ()
    home = cache_dir(environ) / "packages" / _digest(package, env)
    folder = await trio.to_thread.run_sync(_folder, home, package)
    if folder is None:
        log(
            f"'{server.command}' is downloading {package.specs[0]}; all servers that run this package share the "
            "download"
        )
        async with _alone(home):
            # Another process may have installed it while this one waited for the lock.
            folder = await trio.to_thread.run_sync(_folder, home, package)
            if folder is None:
                folder = await _renewed(me, server, environ, place, package, home, manager, log)
    program = await trio.to_thread.run_sync(_program, folder, package)
    if program is None:
        log(f"{package.specs[0]} has no program of its own name, so '{server.command}' starts the server")
        return server, ()
    path = os.pathsep.join((str(program.parent), env.get("PATH", "")))
    started = replace(server, command=str(program), args=package.args, env={**server.env, "PATH": path})
    return started, (str(folder),)


def _keeps_its_own(package: Package, server: Server, env: Mapping[str, str], place: SandboxPlace) -> bool:
    """Return True if the user determines the place of packages: no sandbox, a cache of one's own, or a project."""
    from ...sandbox.policy import is_below

    if place.profile == "open":
        return True
    names, usual = (("npm_config_cache",), ".npm") if package.manager == "npm" else (("UV_CACHE_DIR",), ".cache/uv")
    own = f"{place.home}/{usual}"
    if any(name in env for name in names) or any(is_below(own, place.seen(path)) for path in place.rules.write):
        return True
    directory = Path(server.cwd or place.here).expanduser()
    above = (directory, *directory.parents) if package.manager == "npm" else ()
    return any((each / "node_modules" / package.name).exists() for each in above)


def _manager(package: Package, command: str, path: str) -> str:
    """Return the program that installs it, from the runner's directory if that is named; "" for none."""
    sibling = Path(command).expanduser().with_name(package.manager) if "/" in command else None
    if sibling is not None and sibling.exists():
        return str(sibling)
    return shutil.which(package.manager, path=path) or ""


def _digest(package: Package, env: Mapping[str, str]) -> str:
    # Another index may have another package of this name.
    indexes = sorted((name, value) for name, value in env.items() if _INDEX.fullmatch(name))
    text = json.dumps([package.manager, package.specs, package.options, indexes])
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _folder(home: Path, package: Package, *, even_old: bool = False) -> Path | None:
    """Return the installation in use; None if there is none, or if it is outdated. Blocks."""
    try:
        current = decode_json((home / "current").read_bytes(), Current)
    except (OSError, msgspec.DecodeError):
        return None
    folder = home / current.folder
    if not _FOLDER.fullmatch(current.folder) or folder.is_symlink() or not folder.is_dir():
        return None
    if not even_old and not package.is_pinned and time.time() - current.at > RENEWED_AFTER:
        return None
    # The time of the directory marks its last use, for `sweep`.
    with contextlib.suppress(OSError):
        os.utime(home)
    return folder


@asynccontextmanager
async def _alone(home: Path) -> AsyncIterator[None]:
    """Hold a lock, so that only one process at a time installs a package."""

    def opened() -> int:
        private_directory(home)
        return os.open(home / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    try:
        lock = await trio.to_thread.run_sync(opened)
    except OSError as error:
        raise McpUnsent(f"the cache of downloaded packages can't be written: {error}") from error
    try:
        while True:
            try:
                # Not blocking in a thread: a thread in flock(2) could not be cancelled.
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await trio.sleep(0.2)
        yield
    finally:
        os.close(lock)


async def _renewed(
    me: Actor,
    server: Server,
    environ: Mapping[str, str],
    place: SandboxPlace,
    package: Package,
    home: Path,
    manager: str,
    log: Callable[[str], None],
) -> Path:
    """Install the package again. If that fails, return an older installation."""
    try:
        return await _install(me, server, environ, place, package, home, manager)
    except McpUnsent as error:
        older = await trio.to_thread.run_sync(lambda: _folder(home, package, even_old=True))
        if older is None:
            raise
        log(f"{error}; the version that is already installed is started")
        return older


async def _install(
    me: Actor,
    server: Server,
    environ: Mapping[str, str],
    place: SandboxPlace,
    package: Package,
    home: Path,
    manager: str,
) -> Path:
    from ...sandbox.launch import hold_server

    folder, download = home / secrets.token_hex(8), home / "download"
    await trio.to_thread.run_sync(_prepare, home, folder, download)
    own = {name: value for name, value in server.env.items() if _INDEX.fullmatch(name)}
    env = {**replace(server, env=own).environment(environ), **_variables(package, folder, download, place)}
    # Only the new folder, as working directory, and the download cache are writable.
    rules = replace(place.rules, profile="workspace", write=())
    within = replace(place, rules=rules, here=str(folder), caches="", named=())
    most = max(TAKES_AT_MOST, server.start_timeout_seconds)
    try:
        held = await hold_server(me, within, server.name, own, environ, writes=(download,))
        ran = await run_process(
            me,
            _command(package, folder, manager),
            name="install",
            env=env,
            cwd=folder,
            timeout=most,
            confinement=held,
        )
        if ran.status != 0:
            output = f"{ran.stderr_tail}\n{ran.stdout[-2000:].decode('utf-8', 'replace')}"
            refused = "".join(f" [the sandbox blocked its access to {host}]" for host in held.refused_hosts)
            raise McpUnsent(_failed(server, package, f"{_last_lines(output)}{refused}"))
    except TimedOut as error:
        why = f"the download took more than {most:g} s (raise `start_timeout_seconds` of {entry_of(server)})"
        raise McpUnsent(_failed(server, package, why)) from error
    except ProcessError as error:
        raise McpUnsent(_failed(server, package, str(error))) from error
    except OSError as error:
        raise McpUnsent(
            _failed(server, package, f"the cache of downloaded packages can't be written: {error}")
        ) from error
    await trio.to_thread.run_sync(_finish, home, folder, download)
    return folder


def _failed(server: Server, package: Package, why: str) -> str:
    return f"MCP server '{server.name}': {package.manager} could not install {' '.join(package.specs)}: {why}"


def _last_lines(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return " / ".join(lines[:6])[:600] or "there was no output"


def _prepare(home: Path, folder: Path, download: Path) -> None:
    sweep(home.parent, LEFT_FOR)
    private_directory(folder)
    private_directory(download)
    (folder / "package.json").write_text('{"private": true}\n')


def _finish(home: Path, folder: Path, download: Path) -> None:
    """Make the installation current, and remove outdated ones."""
    shutil.rmtree(download, ignore_errors=True)
    write_whole(home / "current", msgspec.json.encode(Current(folder.name, time.time())))
    for each in home.iterdir():
        is_other = _FOLDER.fullmatch(each.name) and each != folder
        if is_other and each.lstat().st_mtime < time.time() - REPLACED_LEFT_FOR:
            shutil.rmtree(each, ignore_errors=True)


def _variables(package: Package, folder: Path, download: Path, place: SandboxPlace) -> dict[str, str]:
    if package.manager == "npm":
        return {
            "npm_config_cache": str(download / "npm"),
            "npm_config_logs_max": "0",
            "npm_config_update_notifier": "false",
        }
    made = {"UV_CACHE_DIR": download / "uv", "UV_TOOL_DIR": folder / "tools", "UV_TOOL_BIN_DIR": folder / "bin"}
    # else existing ones are used; the sandbox can read them
    if not (Path(place.home) / ".local/share/uv/python").is_dir():
        made["UV_PYTHON_INSTALL_DIR"] = folder / "python"
    return {**{name: str(path) for name, path in made.items()}, "UV_LINK_MODE": "copy", "UV_NO_PROGRESS": "1"}


def _command(package: Package, folder: Path, manager: str) -> list[str]:
    if package.manager == "npm":
        quiet = ("--no-audit", "--no-fund", "--loglevel=error", "--no-package-lock")
        return [manager, "install", f"--prefix={folder}", *quiet, "--", *package.specs]
    extra = [text for spec in package.specs[1:] for text in ("--with", spec)]
    return [manager, "tool", "install", "--quiet", *package.options, *extra, package.specs[0]]


def _program(folder: Path, package: Package) -> Path | None:
    """Return the installed program; None if there is none, or if it is not inside the folder. Blocks."""
    if package.manager == "npm":
        name = package.program or _named_in_manifest(folder / "node_modules" / package.name / "package.json", package)
        program = folder / "node_modules" / ".bin" / name
    else:
        name, program = package.program, folder / "bin" / package.program
    real = os.path.realpath(program)
    is_inside = real.startswith(f"{os.path.realpath(folder)}{os.sep}")
    return program if name and "/" not in name and is_inside and os.access(real, os.X_OK) else None


def _named_in_manifest(manifest: Path, package: Package) -> str:
    """Return the program that npx starts: the only one, or the one with the package's name."""
    usual = package.name.rpartition("/")[2]
    try:
        programs = json.loads(manifest.read_text()).get("bin")
    except (OSError, ValueError, AttributeError):
        return ""
    if isinstance(programs, str):
        return usual
    if not isinstance(programs, dict):
        return ""
    return next(iter(programs)) if len(set(map(str, programs.values()))) == 1 else usual if usual in programs else ""
