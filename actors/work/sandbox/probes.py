"""Self-test of the sandbox: attempts to break out, each with its expected and its actual result.

The probes only touch objects created for them: a home directory with a key, files, sockets, and a process outside of
the workspace. Kernel files of the machine are opened and never written.

All probes of a backend run in one sandboxed process, each in a fork of it. A probe is a piece of Python. It raises
OSError where the sandbox refuses the attempt, and reports its result otherwise. Afterwards the parent process checks
whether anything outside has changed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from ....protocol.sandbox import Profile, UserSandbox
from ....supervisors import Actor, Root
from ....supervisors.process import run_process
from ...io.temporary import LazyDirectory, ProcessDirectoryBase
from .backends import VARIABLE, Backend, backend
from .grants import Grants
from .policy import RETAINED_CAPABILITIES, Nature
from .run_sandbox import Sandbox

SECRET = "a-secret-of-the-probe"  # noqa: S105 - created for the probes
PROFILE: Profile = "workspace"
WITHIN = 120.0
"""Seconds for all probes of one backend."""

REFUSED = "refused"
NOT_THERE = "refused, or not there"


class SandboxProbe(msgspec.Struct, frozen=True):
    """Attempt to leave the sandbox.

    Attributes:
        tried: description of the attempt.
        code: Python code; see the module. The objects of `_world` are its variables.
        expected: expected result in words.
        not_kept_by: backends that do not prevent it, as docs/sandbox.md states.
        not_refused: the probe passes with `""` as its result, and fails with any other.
    """

    tried: str
    code: str
    expected: str = REFUSED
    not_kept_by: tuple[str, ...] = ()
    not_refused: bool = False


_SOCKET = "s = socket.socket(socket.AF_UNIX, socket.{}); s.connect({}); said = 'connected'"

PROBES = (
    SandboxProbe("create a file in the home directory", "open(f'{HOME}/made', 'w')"),
    SandboxProbe("write to a file outside of the workspace", "open(f'{OUTSIDE}/kept', 'a')"),
    SandboxProbe("remove a file outside of the workspace", "os.unlink(f'{OUTSIDE}/removed')"),
    SandboxProbe("rename a file out of the workspace", "os.rename(f'{WORKSPACE}/code', f'{OUTSIDE}/code')"),
    SandboxProbe("read a key in ~/.ssh", "said = open(f'{HOME}/.ssh/id').read()", NOT_THERE),
    SandboxProbe(
        "read a credential file of an unknown program", "said = open(f'{HOME}/.unknown/token').read()", NOT_THERE
    ),
    SandboxProbe("read .env in the workspace", "said = open(f'{WORKSPACE}/.env').read()", REFUSED, ("landlock",)),
    SandboxProbe(
        "open files below /proc/sys for writing", "said = writable('/proc/sys')", "none opens", not_refused=True
    ),
    SandboxProbe("open files below /sys for writing", "said = writable('/sys')", "none opens", not_refused=True),
    SandboxProbe("change .git/config", "open(f'{WORKSPACE}/.git/config', 'a')", REFUSED, ("landlock",)),
    SandboxProbe("create a git hook", "open(f'{WORKSPACE}/.git/hooks/pre-commit', 'w')", REFUSED, ("landlock",)),
    SandboxProbe("connect to a Unix socket (stream)", _SOCKET.format("SOCK_STREAM", "f'{OUTSIDE}/stream'")),
    SandboxProbe("connect to a Unix socket (datagram)", _SOCKET.format("SOCK_DGRAM", "f'{OUTSIDE}/datagram'")),
    SandboxProbe("connect to a Unix socket (seqpacket)", _SOCKET.format("SOCK_SEQPACKET", "f'{OUTSIDE}/seqpacket'")),
    SandboxProbe("connect to an abstract socket", _SOCKET.format("SOCK_STREAM", "chr(0) + ABSTRACT")),
    SandboxProbe(
        "reach a server on this machine",
        "s = socket.create_connection(('127.0.0.1', int(PORT)), 5); said = 'connected'",
    ),
    SandboxProbe(
        "reach a host by its address", "s = socket.create_connection(('192.0.2.1', 80), 5); said = 'connected'"
    ),
    SandboxProbe("chmod a file outside", "os.chmod(f'{OUTSIDE}/kept', 0o777)"),
    SandboxProbe("chown a file outside", "os.chown(f'{OUTSIDE}/kept', os.getuid(), os.getgid())"),
    SandboxProbe("set the times of a file outside", "os.utime(f'{OUTSIDE}/kept', (1, 1))"),
    SandboxProbe("set an attribute of a file outside", "os.setxattr(f'{OUTSIDE}/kept', 'user.probe', b'1')"),
    SandboxProbe("use inherited descriptors", "said = ', '.join(INHERITED)", "none", not_refused=True),
    SandboxProbe(
        "read a token in the environment", "said = os.environ.get('CALLBOARD_PROBE_TOKEN', '')", "none", (), True
    ),
    SandboxProbe("use capabilities of root", "said = capabilities()", "those for files of other users", (), True),
    SandboxProbe("open devices", "said = devices()", "none but the usual ones", not_refused=True),
    SandboxProbe("mount a file system", "check(libc.mount(b'none', OUTSIDE.encode(), b'tmpfs', 0, None))"),
    SandboxProbe("make a user namespace", "check(libc.unshare(0x10000000))"),
    SandboxProbe("trace a process outside", "check(libc.ptrace(16, int(VICTIM), None, None))"),
    SandboxProbe("read the environment of a process outside", "said = open(f'/proc/{VICTIM}/environ').read()"),
    SandboxProbe("signal a process outside", "os.kill(int(VICTIM), 0)"),
)

RUNNER = """
import ctypes, errno, json, os, socket, stat, sys
libc = ctypes.CDLL(None, use_errno=True)
made, probes, allowed = json.loads(sys.argv[1]), json.loads(sys.argv[2]), int(sys.argv[3])
INHERITED = []
for name in os.listdir('/proc/self/fd'):
    try: where = os.readlink('/proc/self/fd/' + name)
    except OSError: continue
    if int(name) > 2 and not where.startswith('/proc/'): INHERITED.append(where)
def check(result):
    if result != 0: raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
def writable(top):
    for directory, _, names in os.walk(top):
        for name in names:
            path = os.path.join(directory, name)
            try:
                if not os.lstat(path).st_mode & 0o222: continue
                os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
            except OSError: continue
            return path
    return ''
def capabilities():
    kinds = ('CapEff', 'CapPrm', 'CapInh', 'CapAmb')
    lines = [line.split() for line in open('/proc/self/status') if line.startswith(kinds)]
    return ', '.join(f'{name} {value}' for name, value in lines if int(value, 16) & ~allowed)
def devices():
    usual = {'null', 'zero', 'full', 'random', 'urandom', 'tty', 'ptmx'}
    found = []
    for name in os.listdir('/dev'):
        try:
            mode = os.lstat('/dev/' + name).st_mode
            if name in usual or not (stat.S_ISBLK(mode) or stat.S_ISCHR(mode)): continue
            os.close(os.open('/dev/' + name, os.O_RDONLY | os.O_NONBLOCK)); found.append(name)
        except OSError: pass
    return ', '.join(found)
for code in probes:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            names = dict(globals(), **made, said='it went through')
            exec(code, names)
            result = {'said': str(names['said'])[:200]}
        except OSError as error:
            result = {'refused': errno.errorcode.get(error.errno, '') or str(error)[:200]}
        except BaseException as error:
            result = {'broken': repr(error)[:200]}
        os.write(write, json.dumps(result).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe: text = pipe.read()
    os.waitpid(child, 0)
    print(text or json.dumps({'refused': 'it was ended'}), flush=True)
"""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Result of one probe.

    Attributes:
        backend: backend of the sandbox.
        holds: True if the result is as expected. None: this backend does not prevent it, as docs/sandbox.md states.
    """

    backend: str
    tried: str
    expected: str
    found: str
    holds: bool | None


class Probed(msgspec.Struct, frozen=True, kw_only=True):
    """All findings; `missing` has, for each backend that does not work here, the reason and the package to install."""

    findings: tuple[Finding, ...]
    missing: Mapping[str, str]

    @property
    def holds(self) -> bool:
        """True if a sandbox works here and no finding is worse than documented: none has `holds` False."""
        return bool(self.findings) and all(each.holds is not False for each in self.findings)


async def probed() -> Probed:
    """Run all probes under each backend that works here, the default one first.

    With `CALLBOARD_SANDBOX_BACKEND` set, only that backend is probed.
    """
    findings: list[Finding] = []
    missing: dict[str, str] = {}
    default = backend().kind
    wanted = os.environ.get(VARIABLE)
    kinds = sorted(("bubblewrap", "landlock"), key=lambda kind: kind != default)
    for kind in [wanted] if wanted else kinds:
        way = backend({VARIABLE: kind})
        if way.kind == "none":
            missing[kind] = "; ".join(way.why_not)
            continue
        with _environment(kind), _world() as (made, state):
            # Compared afterwards, because a probe may have an effect and still report a refusal.
            before = state()
            findings += await _probed(way, made)
            changed = sorted(set(before) ^ set(state()))
            findings.append(
                Finding(
                    backend=kind,
                    tried="all probes, checked from outside of the sandbox",
                    expected="nothing has changed",
                    found=f"changed: {changed[0]}" if changed else "nothing has changed",
                    holds=not changed,
                )
            )
    return Probed(findings=tuple(findings), missing=missing)


async def _probed(way: Backend, made: Mapping[str, str]) -> list[Finding]:
    base = Path(made["WORKSPACE"]).parent
    sandbox = Sandbox(
        UserSandbox(profile=PROFILE),
        here=base / "workspace",
        config_dir=base / "config",
        environ={"HOME": made["HOME"], "XDG_CACHE_HOME": str(base / "cache")},
        temporary=LazyDirectory("run-probes", lambda: [ProcessDirectoryBase(base / "temporary")]),
        grants=Grants(None, None),
    )
    allowed = sum(1 << number for number in RETAINED_CAPABILITIES.values())
    code = [probe.code for probe in PROBES]
    argv = [sys.executable, "-I", "-S", "-c", RUNNER, *map(_json, (made, code)), str(allowed)]
    lines: list[str] = []

    async def body(me: Actor) -> None:
        held = await sandbox.held(me, Nature(name="probes"))
        done = await run_process(
            me, argv, env=dict(os.environ), cwd=base / "workspace", timeout=WITHIN, confinement=held
        )
        lines.extend(done.stdout.decode().splitlines())
        if len(lines) < len(PROBES):
            lines.append(_json({"broken": done.stderr_tail.strip()[-200:] or f"status {done.status}"}))

    async with Root() as root:
        await root.spawn(body).wait()
    results: list[dict[str, str]] = [msgspec.json.decode(line) for line in lines]
    results += [{"broken": "the probe was not run"}] * (len(PROBES) - len(results))
    return [_finding(way, probe, result) for probe, result in zip(PROBES, results, strict=True)]


def _finding(way: Backend, probe: SandboxProbe, result: Mapping[str, str]) -> Finding:
    holds: bool | None = "refused" in result
    found = f"refused ({result['refused']})" if holds else result.get("said", "").strip()
    if probe.not_refused:
        holds = result.get("said") == ""
        found = found or probe.expected
    elif probe.tried.startswith("read ") and result.get("said") == "":
        holds, found = True, "the file is empty"
    if "broken" in result:
        holds, found = False, f"the probe failed: {result['broken']}"
    if not holds and (way.kind in probe.not_kept_by or _needs_newer(way, probe)):
        holds = None
    return Finding(backend=way.kind, tried=probe.tried, expected=probe.expected, found=found, holds=holds)


def _needs_newer(way: Backend, probe: SandboxProbe) -> bool:
    """Return True if the probe needs Landlock's ABI 6 (Linux 6.12), which scopes signals."""
    return way.kind == "landlock" and way.abi < 6 and probe.tried.startswith("signal ")


@contextlib.contextmanager
def _environment(kind: str) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update({VARIABLE: kind, "CALLBOARD_PROBE_TOKEN": SECRET})
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextlib.contextmanager
def _world() -> Iterator[tuple[dict[str, str], Any]]:
    """Yield the objects of the probes, and a function that returns the state of the outside directories.

    The directories are not in /tmp, because the sandbox replaces it.
    """
    place = "/var/tmp" if os.access("/var/tmp", os.W_OK) else None  # noqa: S108 - a directory with a random name in it
    base = Path(tempfile.mkdtemp(prefix="callboard-probes-", dir=place))
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, base, ignore_errors=True)
        outside, home, workspace = base / "outside", base / "home", base / "workspace"
        for directory in (outside, home / ".ssh", home / ".unknown", workspace / ".git" / "hooks", base / "config"):
            directory.mkdir(parents=True)
        for folder in ("objects", "refs"):
            (workspace / ".git" / folder).mkdir()
        (workspace / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
        (workspace / ".git" / "config").write_text("[core]\n\tbare = false\n")
        for file in (outside / "kept", outside / "removed", home / ".ssh/id", home / ".unknown/token"):
            file.write_text(SECRET)
        (workspace / ".env").write_text(f"TOKEN={SECRET}\n")
        (workspace / "code").write_text("code\n")
        abstract = f"callboard-probe-{os.getpid()}"
        for kind, name in ((socket.SOCK_STREAM, "stream"), (socket.SOCK_SEQPACKET, "seqpacket")):
            _listen(stack, socket.AF_UNIX, kind, str(outside / name))
        _listen(stack, socket.AF_UNIX, socket.SOCK_DGRAM, str(outside / "datagram"))
        _listen(stack, socket.AF_UNIX, socket.SOCK_STREAM, f"\0{abstract}")
        port = _listen(stack, socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)).getsockname()[1]
        # An inheritable descriptor, which the sandbox must not pass on.
        leaked = os.open(outside / "kept", os.O_RDWR)
        stack.callback(os.close, leaked)
        os.set_inheritable(leaked, True)
        victim = stack.enter_context(
            subprocess.Popen([sys.executable, "-I", "-S", "-c", "input()"], stdin=subprocess.PIPE)
        )
        stack.callback(victim.kill)
        made = {"OUTSIDE": outside, "HOME": home, "WORKSPACE": workspace, "ABSTRACT": abstract, "PORT": port}
        made["VICTIM"] = victim.pid
        yield {name: str(value) for name, value in made.items()}, lambda: _state(outside, home)


def _listen(stack: contextlib.ExitStack, family: int, kind: int, address: Any) -> socket.socket:
    server = stack.enter_context(socket.socket(family, kind))
    server.bind(address)
    if kind != socket.SOCK_DGRAM:
        server.listen()
    return server


def _state(*tops: Path) -> set[tuple[str, int, int, int]]:
    paths = [path for top in tops for path in (top, *top.rglob("*"))]
    seen = [(str(path), path.lstat()) for path in paths]
    return {(path, stat.st_mode, stat.st_uid, stat.st_ctime_ns) for path, stat in seen}


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
